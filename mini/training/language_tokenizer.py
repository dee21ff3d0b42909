"""The tokenizer of the mini language model: known words whole, every other word spelt letter by letter.

A byte-level BPE without merges: a word of the vocabulary is one token, with and without the space before it; any other
falls apart into bytes, the space being one of its own. So a word never seen has the same spelling everywhere, which is
what copying it needs. Digits and newlines are always single. Common stretches of code are single tokens too.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

from codevqa.mini.world import COLORS, KINDS, SIZES, pluralize
from codevqa.primitives.reading import INSTRUCTION

from .captions import draw_captions
from .language_data import EOS, bank, draw_item, preamble, program_text
from .language_words import GENERAL

PAD = "<pad>"
IDIOMS = (
    'img = open_image("Image',
    'images = open_images("ImageSet',
    '.jpg")',
    'answer = query(img, "',
    'answer = "yes" if ',
    ' else "no"',
    '    if query(img, "',
    '") == "yes"',
    '") == "no"',
    '    if int(query(img, "',
    "for img in images:",
    "        count += ",
    '    total += int(query(img, "',
    'first = query(img, "',
    'second = query(img, "',
    'first = int(query(img, "',
    'second = int(query(img, "',
    'first == "yes"',
    'second == "yes"',
    'second == "no"',
    ' = get_pos(img, "',
    '")',
    '"))',
    'img = find_matching_image(images, "',
    "answer = str(",
    "# Image",
    "# Image Set",
    'color = query(img, "',
    'size = query(img, "',
    'found = query(img, "',
    'found == "yes"',
    'counts = [int(query(img, "',
    '")) for img in images]',
    "query(images[",
    "int(query(images[",
    "len(images)",
    "(LEFT + RIGHT) / ",
    "(BOTTOM + TOP) / ",
    ' == "',
    '], "',
    'answer = "',
    " == ",
    " != ",
    " >= ",
    " > ",
    " < ",
    "(images, ",
    INSTRUCTION,
    "===",
    "Context:",
    "count = ",
    "total = ",
)
_WORD = re.compile(r" ?[A-Za-z]+")


def common_words(rng: random.Random, questions: int) -> list[str]:
    """Whole words, with or without a space before them, that the texts use."""
    seen: Counter[str] = Counter()
    for _ in range(questions):
        form = rng.choice(("image", "set"))
        scenes, item = draw_item(rng, form)
        text = "".join(piece.text for piece in program_text("", [], item))
        sentences = " ".join(caption[:1].upper() + caption[1:] + "." for caption in draw_captions(scenes[0], rng, 2))
        seen.update(_WORD.findall(f"{text}\n{sentences}\nQ: {item.question} {sentences}"))
    texts = [preamble(), *(example.program for form in ("image", "set") for example in bank(form))]
    for text in (*texts, *(re.sub(r"\{.\}", "", template) for template in GENERAL)):
        seen.update(dict.fromkeys(_WORD.findall(text), 5))
    for word in (*KINDS, *map(pluralize, KINDS), *COLORS, *SIZES, "yes", "no"):
        seen.update({word: 5, f" {word}": 5})
    return sorted(word for word, count in seen.items() if count >= 3 and word.strip())


def build_language_tokenizer(questions: int = 3000) -> Any:
    """Builds the tokenizer as transformers loads it, with the words of so many texts."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [word.replace(" ", "Ġ") for word in common_words(random.Random(0), questions)]
    ids = {token: place for place, token in enumerate(dict.fromkeys([PAD, EOS, *alphabet, *words]))}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n|\d"), "isolated"),
            pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|[^A-Za-z]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, EOS])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in IDIOMS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
