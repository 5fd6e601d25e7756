"""Ten captions in each of some languages, and English ones of several kinds."""

import random

FOREIGN = {
    "Italian": """
        Un cane marrone corre sulla spiaggia
        Due bambini giocano nella neve davanti a una casa
        Una donna con un cappello rosso legge un libro
        Un uomo suona la chitarra sul palco
        Tre ragazze camminano lungo la strada
        Un gatto dorme sul divano
        Una barca a vela sul lago al tramonto
        Un ciclista attraversa il ponte
        Scarpe da corsa nere da donna
        Tazza di ceramica bianca con manico
    """,
    "Portuguese": """
        Um cachorro marrom corre na praia
        Duas crianças brincam na neve em frente a uma casa
        Uma mulher de chapéu vermelho lê um livro
        Um homem toca violão no palco
        Três meninas caminham pela rua
        Um gato dorme no sofá
        Um barco à vela no lago ao pôr do sol
        Um ciclista atravessa a ponte
        Tênis de corrida feminino preto
        Caneca de cerâmica branca com alça
    """,
    "Dutch": """
        Een bruine hond rent over het strand
        Twee kinderen spelen in de sneeuw voor een huis
        Een vrouw met een rode hoed leest een boek
        Een man speelt gitaar op het podium
        Drie meisjes lopen door de straat
        Een kat slaapt op de bank
        Een zeilboot op het meer bij zonsondergang
        Een fietser steekt de brug over
        Zwarte hardloopschoenen voor dames
        Witte keramische mok met handvat
    """,
    "Polish": """
        Brązowy pies biegnie po plaży
        Dwoje dzieci bawi się w śniegu przed domem
        Kobieta w czerwonym kapeluszu czyta książkę
        Mężczyzna gra na gitarze na scenie
        Trzy dziewczyny idą ulicą
        Kot śpi na kanapie
        Żaglówka na jeziorze o zachodzie słońca
        Rowerzysta przejeżdża przez most
        Czarne damskie buty do biegania
        Biały kubek ceramiczny z uchwytem
    """,
    "Turkish": """
        Kahverengi bir köpek sahilde koşuyor
        İki çocuk bir evin önünde karda oynuyor
        Kırmızı şapkalı bir kadın kitap okuyor
        Bir adam sahnede gitar çalıyor
        Üç kız caddede yürüyor
        Bir kedi kanepede uyuyor
        Gün batımında gölde bir yelkenli
        Bir bisikletli köprüden geçiyor
        Siyah kadın koşu ayakkabısı
        Kulplu beyaz seramik kupa
    """,
    "Swedish": """
        En brun hund springer på stranden
        Två barn leker i snön framför ett hus
        En kvinna med röd hatt läser en bok
        En man spelar gitarr på scenen
        Tre flickor går längs gatan
        En katt sover på soffan
        En segelbåt på sjön vid solnedgången
        En cyklist korsar bron
        Svarta löparskor för dam
        Vit keramikmugg med handtag
    """,
    "Indonesian": """
        Seekor anjing coklat berlari di pantai
        Dua anak bermain di salju di depan rumah
        Seorang wanita bertopi merah membaca buku
        Seorang pria bermain gitar di panggung
        Tiga gadis berjalan di sepanjang jalan
        Seekor kucing tidur di sofa
        Perahu layar di danau saat matahari terbenam
        Seorang pesepeda melintasi jembatan
        Sepatu lari wanita warna hitam
        Cangkir keramik putih dengan pegangan
    """,
    "Vietnamese": """
        Một con chó nâu chạy trên bãi biển
        Hai đứa trẻ chơi trong tuyết trước ngôi nhà
        Người phụ nữ đội mũ đỏ đang đọc sách
        Một người đàn ông chơi đàn ghi ta trên sân khấu
        Ba cô gái đi dọc con phố
        Con mèo ngủ trên ghế sofa
        Thuyền buồm trên hồ lúc hoàng hôn
        Người đi xe đạp qua cầu
        Giày chạy bộ nữ màu đen
        Cốc gốm trắng có quai
    """,
    "Hungarian": """
        Egy barna kutya fut a tengerparton
        Két gyerek játszik a hóban egy ház előtt
        Egy piros kalapos nő könyvet olvas
        Egy férfi gitározik a színpadon
        Három lány sétál az utcán
        Egy macska alszik a kanapén
        Vitorlás a tavon naplementekor
        Egy kerékpáros átkel a hídon
        Fekete női futócipő
        Fehér kerámia bögre füllel
    """,
    "German": """
        Ein brauner Hund rennt am Strand entlang
        Zwei Kinder spielen im Schnee vor einem Haus
        Eine Frau mit rotem Hut liest ein Buch
        Ein Mann spielt Gitarre auf der Bühne
        Drei Mädchen gehen die Straße entlang
        Eine Katze schläft auf dem Sofa
        Ein Segelboot auf dem See bei Sonnenuntergang
        Ein Radfahrer überquert die Brücke
        Schwarze Laufschuhe für Damen
        Weiße Keramiktasse mit Henkel
    """,
    "French": """
        Un chien marron court sur la plage
        Deux enfants jouent dans la neige devant une maison
        Une femme au chapeau rouge lit un livre
        Un homme joue de la guitare sur scène
        Trois filles marchent dans la rue
        Un chat dort sur le canapé
        Un voilier sur le lac au coucher du soleil
        Un cycliste traverse le pont
        Chaussures de course noires pour femme
        Tasse en céramique blanche avec anse
    """,
    "Spanish": """
        Un perro marrón corre por la playa
        Dos niños juegan en la nieve delante de una casa
        Una mujer con sombrero rojo lee un libro
        Un hombre toca la guitarra en el escenario
        Tres chicas caminan por la calle
        Un gato duerme en el sofá
        Un velero en el lago al atardecer
        Un ciclista cruza el puente
        Zapatillas de correr negras para mujer
        Taza de cerámica blanca con asa
    """,
    "Cyrillic": """
        Коричневая собака бежит по пляжу
        Двое детей играют в снегу перед домом
        Женщина в красной шляпе читает книгу
        Белая керамическая кружка с ручкой
    """,
    "Greek": """
        Ένας καφέ σκύλος τρέχει στην παραλία
        Δύο παιδιά παίζουν στο χιόνι
        Μια γυναίκα με κόκκινο καπέλο διαβάζει ένα βιβλίο
    """,
    "Arabic": """
        كلب بني يركض على الشاطئ
        طفلان يلعبان في الثلج أمام المنزل
        امرأة بقبعة حمراء تقرأ كتابا
    """,
    "Devanagari": """
        एक भूरा कुत्ता समुद्र तट पर दौड़ रहा है
        दो बच्चे बर्फ में खेल रहे हैं
        लाल टोपी वाली महिला किताब पढ़ रही है
    """,
    "Japanese": """
        茶色い犬が浜辺を走っている
        二人の子供が雪の中で遊んでいる
        赤い帽子の女性が本を読んでいる
    """,
    "Chinese characters": """
        一只棕色的狗在海滩上奔跑
        两个孩子在房子前的雪地里玩耍
        戴红帽子的女人在看书
    """,
    "Korean": """
        갈색 개가 해변을 달리고 있다
        두 아이가 집 앞 눈밭에서 놀고 있다
        빨간 모자를 쓴 여자가 책을 읽고 있다
    """,
}
LATIN = tuple(FOREIGN)[:12]
SCRIPTS = tuple(FOREIGN)[12:]


def foreign(language: str, count: int = 60) -> list[str]:
    """Captions in a language, repeated to `count`."""
    lines = [line.strip() for line in FOREIGN[language].strip().splitlines()]
    return [lines[at % len(lines)] for at in range(count)]


def english(kind: str, count: int = 200) -> list[str]:
    """English captions: `sentences`, `keywords`, `titles` of products, names of `files`, or `numbers`."""
    rng = random.Random(kind)
    pick = rng.choice
    things = ["dog", "girl", "sailboat", "cyclist", "kitten", "grandmother", "waterfall", "umbrella", "firefighter"]
    looks = ["brown", "red", "young", "smiling", "wooden", "vintage", "waterproof", "lightweight", "foldable"]
    places = ["on the beach", "in the snow", "near a fountain", "behind the fence", "at sunset", "under a tree"]
    goods = ["running shoe", "backpack", "coffee mug", "desk lamp", "kitchen knife", "bluetooth speaker"]
    brands = ["Nike", "Xiaomi", "Makita", "Hoka", "Tefal", "Miele", "Philips", "Nestlé", "Citroën"]
    number = rng.randrange
    make = {
        "sentences": lambda: f"A {pick(looks)} {pick(things)} is standing {pick(places)} next to a {pick(things)}.",
        "keywords": lambda: ", ".join(rng.sample([*things, *looks], 3)),
        "titles": lambda: f"{pick(brands)} Men's {pick(looks)} {pick(goods)}, XL, 500 ml - QZR{number(9999)}",
        "files": lambda: pick([f"IMG_{number(9999)}.jpg", f"DSC{number(999)}_edit.png", f"red_dress_{number(9)}.jpeg"]),
        "numbers": lambda: str(number(10 ** number(1, 12))),
    }[kind]
    return [make() for _ in range(count)]
