"""The word-level vocabulary of the mini vision models.

Every word of captions and questions, common function words, and single characters as word pieces, so that any text has
tokens.
"""

from __future__ import annotations

import string

from tokenizers import BertWordPieceTokenizer

from codevqa.mini.world import COLORS, KINDS, SIZES, pluralize

from .captions import NUMBERS

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "[ENC]")
PAD, UNK, CLS, SEP, MASK, DEC, ENC = range(7)

_NOUN_TEXT = "object thing item shape block tower box picture image photo wall edge side"
_NOUNS = tuple(_NOUN_TEXT.split())
_OTHER_TEXT = """
a an the this that these those it its they them there here one ones another other others each every all any some none
no not only just exactly at least most more less fewer than as many much number total altogether how what which who
where when why whose is are was were be been being am do does did has have had having can could will would shall
should may might must i you he she we your my our and or but nor if then so because of to in on onto into off over
above below under beneath beside between among near next by with without within around behind front from for about
inside outside out up down upper lower left right top bottom middle center centre corner base ground floor roof half
part place located lie lies lying standing touching touches touch closely close directly stacked stack contain
contains containing include includes show shows shown showing see seen visible look looks appear appears depicted
present exist exists find count counting color colors colour colours colored coloured kind kinds type types size sizes
big bigger biggest little tiny smaller smallest larger largest same different differ differs equal equally similar
both either neither also even odd further furthest higher highest high lowest low nearer nearest closest far farthest
first second third fourth last single several multiple few lot lots pair pairs group empty nothing something anything
everything somewhere yes true false correct height tall taller tallest short shorter long longer wide horizontal
vertical round pointed bright dark light grey gray pink brown sheet set sets row rows column columns question answer
nine ten zero eleven twelve once twice per like made make makes consist consists consisting hold holds holding placed
across drawn drawing found greater greatest sum together fewest me tell name named share shares well word draw nearby
put positioned arranged ordered order relation relative opposite end ends beginning starting start begins begin
"""
_OTHER = tuple(_OTHER_TEXT.split())


def all_tokens() -> tuple[str, ...]:
    """All tokens, in the order of their ids."""
    own: list[str] = [*COLORS, *SIZES, *NUMBERS]
    for noun in (*KINDS, *_NOUNS):
        own += [noun, pluralize(noun)]
    pieces = [*string.ascii_lowercase, *string.digits]
    rest = dict.fromkeys([*own, *(word for word in _OTHER if word.isalpha())])
    marks = (",", ".", "?", "!", "'", "-", ":", ";", '"', "(", ")", "/")
    return (*SPECIAL, *marks, *pieces, *(f"##{piece}" for piece in pieces), *(word for word in rest if len(word) > 1))


_TOKENIZER = BertWordPieceTokenizer({word: place for place, word in enumerate(all_tokens())})


def text_ids(text: str) -> list[int]:
    """Ids of a text without special tokens, as BERT's lower-casing tokenizer gives them."""
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False).ids
    return ids
