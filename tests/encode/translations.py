"""Four captions in each of the languages of the encoder `muse`, Chinese in both of its scripts."""

TRANSLATIONS = {
    "English": (
        "A dog runs on the beach.",
        "Two children are playing football in the snow.",
        "A red car is parked in front of the house.",
        "An old woman is reading a newspaper on a bench.",
    ),
    "Arabic": (
        "كلب يجري على الشاطئ.",
        "طفلان يلعبان كرة القدم في الثلج.",
        "سيارة حمراء متوقفة أمام المنزل.",
        "امرأة عجوز تقرأ جريدة على مقعد.",
    ),
    "Chinese": (
        "一只狗在海滩上奔跑。",
        "两个孩子在雪地里踢足球。",
        "一辆红色的汽车停在房子前面。",
        "一位老妇人坐在长椅上看报纸。",
    ),
    "Traditional Chinese": (
        "一隻狗在海灘上奔跑。",
        "兩個孩子在雪地裡踢足球。",
        "一輛紅色的汽車停在房子前面。",
        "一位老婦人坐在長椅上看報紙。",
    ),
    "Dutch": (
        "Een hond rent over het strand.",
        "Twee kinderen spelen voetbal in de sneeuw.",
        "Een rode auto staat geparkeerd voor het huis.",
        "Een oude vrouw leest een krant op een bankje.",
    ),
    "French": (
        "Un chien court sur la plage.",
        "Deux enfants jouent au football dans la neige.",
        "Une voiture rouge est garée devant la maison.",
        "Une vieille femme lit un journal sur un banc.",
    ),
    "German": (
        "Ein Hund läuft über den Strand.",
        "Zwei Kinder spielen Fußball im Schnee.",
        "Ein rotes Auto parkt vor dem Haus.",
        "Eine alte Frau liest auf einer Bank eine Zeitung.",
    ),
    "Italian": (
        "Un cane corre sulla spiaggia.",
        "Due bambini giocano a calcio nella neve.",
        "Un'auto rossa è parcheggiata davanti alla casa.",
        "Un'anziana legge il giornale su una panchina.",
    ),
    "Japanese": (
        "犬が浜辺を走っている。",
        "二人の子供が雪の中でサッカーをしている。",
        "赤い車が家の前に停まっている。",
        "おばあさんがベンチで新聞を読んでいる。",
    ),
    "Korean": (
        "개가 해변에서 달리고 있다.",
        "두 아이가 눈 속에서 축구를 하고 있다.",
        "빨간 자동차가 집 앞에 주차되어 있다.",
        "할머니가 벤치에서 신문을 읽고 있다.",
    ),
    "Polish": (
        "Pies biegnie po plaży.",
        "Dwoje dzieci gra w piłkę nożną na śniegu.",
        "Czerwony samochód stoi zaparkowany przed domem.",
        "Starsza kobieta czyta gazetę na ławce.",
    ),
    "Portuguese": (
        "Um cachorro corre na praia.",
        "Duas crianças jogam futebol na neve.",
        "Um carro vermelho está estacionado em frente à casa.",
        "Uma senhora idosa lê um jornal em um banco.",
    ),
    "Russian": (
        "Собака бежит по пляжу.",
        "Двое детей играют в футбол на снегу.",
        "Красная машина припаркована перед домом.",
        "Пожилая женщина читает газету на скамейке.",
    ),
    "Spanish": (
        "Un perro corre por la playa.",
        "Dos niños juegan al fútbol en la nieve.",
        "Un coche rojo está aparcado delante de la casa.",
        "Una anciana lee un periódico en un banco.",
    ),
    "Thai": (
        "สุนัขวิ่งอยู่บนชายหาด",
        "เด็กสองคนกำลังเล่นฟุตบอลในหิมะ",
        "รถยนต์สีแดงจอดอยู่หน้าบ้าน",
        "หญิงชรากำลังอ่านหนังสือพิมพ์บนม้านั่ง",
    ),
    "Turkish": (
        "Bir köpek kumsalda koşuyor.",
        "İki çocuk karda futbol oynuyor.",
        "Evin önünde kırmızı bir araba park etmiş.",
        "Yaşlı bir kadın bankta gazete okuyor.",
    ),
}
SENTENCES = [sentence for sentences in TRANSLATIONS.values() for sentence in sentences]
