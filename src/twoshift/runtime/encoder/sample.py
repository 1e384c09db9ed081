"""Varied texts: what a lower precision is calibrated on, and others that it is judged by."""

from __future__ import annotations

import string
from typing import Any

from twoshift.runtime.encoder.task import EmbeddingTask, Task

__all__ = ["calibration_rows", "parity_rows", "varied_texts"]

_WINDOWS = (2, 3, 5, 8, 13, 40)  # texts that are joined to a longer one; the last is longer than most models take
_APART = 7  # how far the two texts of a pair stand from each other in the list


def calibration_rows(task: Task) -> list[Any]:
    """Rows whose activations set the ranges of a quantised network."""
    return _rows(_CALIBRATION, task)


def parity_rows(task: Task) -> list[Any]:
    """Rows on which a lower precision is compared with full precision; but for the shortest, not the calibration's."""
    return _rows(_PARITY, task)


def varied_texts() -> tuple[str, ...]:
    """Of many languages and kinds, some of no language at all."""
    return _PARITY


def _rows(texts: tuple[str, ...], task: Task) -> list[Any]:
    """Texts alone and joined; pairs of them where a model scores pairs."""
    joined = [" ".join(texts[at : at + size]) for size in _WINDOWS for at in range(0, len(texts), 2 * size)]
    every = [*texts, *joined]
    if isinstance(task, EmbeddingTask):
        return every
    return [(text, every[(row + _APART) % len(every)]) for row, text in enumerate(every)]


_CALIBRATION = (
    "The committee will publish its findings at the end of the month.",
    "where can I buy a used bicycle in Leeds",
    "A 54-year-old woman presented with fever, cough and a rash on both arms.",
    "Revenue rose 12% year on year to EUR 4.6 bn; net debt fell.",
    "The tenant must not sublet the premises without prior written consent.",
    "for (int i = 0; i < n; ++i) { sum += x[i] * y[i]; }",
    "UPDATE users SET email = NULL WHERE last_login < '2019-06-30';",
    "ERROR 500: connection reset by peer (10.0.0.17:8080)",
    "user@example.org",
    "9f86d081884c7d659a2feaa0c55ad015",
    "meh, it's ok i guess... not worth the price tho",
    "Mitochondria are the site of oxidative phosphorylation in eukaryotic cells.",
    "Die Katze sitzt am Fenster und schaut in den Garten.",
    "Le train de huit heures est parti en retard ce matin.",
    "Mañana por la tarde iremos a la playa con los niños.",
    "Mamy nadzieję, że wszystko się uda.",
    "Вчера в Москве выпал первый снег.",
    "Ο καφές είναι ζεστός.",
    "אני לומד עברית כבר שנתיים.",
    "أين تقع أقرب محطة قطار؟",
    "मुझे चाय पसंद है।",
    "我昨天在书店买了三本小说。",
    "駅までの道を教えてください。",
    "내일 아침에 다시 전화하겠습니다.",
    "ฉันชอบอ่านหนังสือ",
    "🔥🔥 best day ever 😍 #summer",
    "x",
    "42",
    "zzzzzzzzzzzzzzzzzzzzzzzz",
    "no no no no no no no no no no",
    '<html><body><p class="a">Hi</p></body></html>',
    "[PAD] [UNK] [MASK] [SEP] [CLS]",
    "<s> <pad> <mask> </s>",
    "",
    "The archive cannot be opened because the file is damaged.",
    "Return a copy of the list with every item converted to a string.",
    "Raises ValueError if the argument is negative or not a number.",
    ">>> import math\n>>> math.sqrt(2)\n1.4142135623730951",
    "usage: cp [-r] [-f] SOURCE... DEST",
    "evaporation, condensation, precipitation",
    "Albert Einstein",
    "Copyright (c) 2020 The Authors. All rights reserved.",
    "| name | age |\n|------|-----|\n| Ann | 31 |",
    "1. Preheat the oven to 180 C. 2. Mix flour, sugar and eggs.",
    *string.punctuation,  # alone, such a sign has ranges that no sentence has
)
_PARITY = (
    "The quick brown fox jumps over the lazy dog.",
    "how do I reset my password",
    "best pizza near me open now",
    "What is the capital of France, and how many people live there today?",
    "The patient was given 20 mg of prednisone daily for five days, with no improvement in dyspnoea.",
    "Shares fell 3.2% to $41.07 after the company cut its full-year forecast for a second time.",
    "Notwithstanding clause 7(b), the Lessee shall indemnify the Lessor against all claims arising hereunder.",
    "def add(a, b):",
    "    return a + b  # TODO: check types",
    "SELECT name, COUNT(*) FROM orders WHERE created_at > '2024-01-01' GROUP BY name HAVING COUNT(*) > 3;",
    "Traceback (most recent call last): KeyError: 'user_id'",
    "https://example.com/a/b?c=d&e=f#g",
    "e4f1c2a9-7b3d-4c55-9f0e-2a6b8d1c0e33",
    "I loved it!!! 10/10 would buy again :)",
    "worst. purchase. ever. broke after two days and support never answered",
    "Photosynthesis converts light energy into chemical energy stored in glucose.",
    "E = mc^2, and the integral of x dx is x^2/2 + C",
    "Der Zug nach München hat heute leider vierzig Minuten Verspätung.",
    "Où se trouve la bibliothèque la plus proche de la gare ?",
    "El gato negro duerme sobre el tejado de la casa vieja.",
    "A reunião foi adiada para a próxima quinta-feira às nove da manhã.",
    "Il caffè di questa mattina era troppo amaro per i miei gusti.",
    "Pogoda w Krakowie będzie jutro słoneczna, ale wietrzna.",
    "Bu akşam yemekte ne pişirsem acaba?",
    "Hôm nay trời mưa to nên tôi ở nhà đọc sách.",
    "Завтра утром мы поедем на дачу собирать яблоки.",
    "Η θάλασσα ήταν ήρεμη και ο ουρανός καθαρός.",
    "השוק היה מלא אנשים ביום שישי בבוקר.",
    "ذهبت إلى السوق لشراء الخبز والزيتون.",
    "आज मौसम बहुत अच्छा है, चलो बाहर घूमने चलते हैं।",
    "আমি বাংলায় গান গাই।",
    "今天的会议改到下午三点，请准时参加。",
    "明日の天気は晴れのち曇りでしょう。",
    "오늘 저녁에 친구들과 영화를 보러 갈 거예요.",
    "วันนี้อากาศร้อนมาก",
    "🎉🎉🎉",
    "so happy today 😂❤️ can't believe it 🥳🥳",
    "👩‍💻 shipped it 🚀 #buildinpublic @friend",
    "a",
    "?",
    "...",
    "0",
    "3.14159 2.71828 1.41421",
    "MAXIMUM LENGTH EXCEEDED ERROR CODE 0x80070057",
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor",
    "[CLS] [SEP] [MASK] [PAD]",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the the the the the the the the the the the the the the",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    '{"id": 17, "tags": ["a", "b"], "price": 9.99, "in_stock": true}',
    "Mix of English, 中文, русский and العربية in one line — with “quotes” and an em dash.",
    "",
    " ",
    "\n\t",
)
