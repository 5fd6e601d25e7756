"""Image-caption pairs: the registry of the readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.pairs.records import Reader

READERS: Registry[Reader] = Registry(
    "reader",
    {
        "table": Entry(
            "pairsift.pairs.readers.tables:read_table", "a CSV, TSV (also as .txt), JSON lines or Parquet file"
        ),
        "folder": Entry(
            "pairsift.pairs.readers.folders:read_folder",
            "images with a text file of the same name beside them, in this folder and all folders below it",
        ),
        "shards": Entry(
            "pairsift.pairs.readers.shards:read_shards",
            "tar files of x.jpg, x.txt, x.json, as WebDataset and img2dataset write them: a folder, or one .tar",
        ),
        "flickr8k": Entry(
            "pairsift.pairs.readers.folders:read_flickr8k",
            "a folder with images/, captions.csv (image, caption) and splits/train.txt, dev.txt, test.txt",
        ),
        "coco": Entry(
            "pairsift.pairs.readers.annotations:read_coco",
            "a COCO captions file: images with id and file_name, annotations with image_id and caption",
        ),
        "karpathy": Entry(
            "pairsift.pairs.readers.annotations:read_karpathy",
            "a file of Karpathy's splits: images with filename, perhaps filepath, split and sentences' raw text",
        ),
        "chinese_clip": Entry(
            "pairsift.pairs.readers.chinese_clip:read_chinese_clip",
            "Chinese-CLIP: a folder of train_imgs.tsv (id, base64) and train_texts.jsonl (text, image_ids), and others",
        ),
        "nuswide": Entry(
            "pairsift.pairs.readers.nuswide:read_nuswide",
            "NUS-WIDE: Flickr/ with ImageList/Imagelist.txt (Train-, Test-) and NUS_WID_Tags/All_Tags.txt",
        ),
        "precomp": Entry(
            "pairsift.pairs.readers.precomp:read_precomp",
            "a folder of features: {train,dev,test}_ims.npy with _caps.txt or .tsv (Flickr30K, COCO, CC152K)",
        ),
        "now": Entry(
            "pairsift.pairs.readers.precomp:read_now",
            "Noise of Web: {train,dev,test}_ims.npy with _caps_{jieba,bpe,bert}.txt, a list of token ids a line",
        ),
        "embeddings": Entry(
            "pairsift.pairs.readers.embeddings:read_embeddings",
            "a folder of image.npy, text.npy and captions.csv, or clip-retrieval's img_emb/, text_emb/, metadata/",
        ),
    },
)
