"""Work on sources of many pairs, shard by shard: each is written as a Parquet part, by any process, in any order."""
