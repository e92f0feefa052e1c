"""RoBERTa: BERT's network, trained longer, on more text, with masked tokens only.

Y. Liu, M. Ott, N. Goyal, J. Du, M. Joshi, D. Chen, O. Levy, M. Lewis, L. Zettlemoyer, V. Stoyanov, RoBERTa: A robustly
optimized BERT pretraining approach, 2019. <https://arxiv.org/abs/1907.11692>

    z⁰_t = LN(E[token_t] + S[0] + P[t + 2]),   the rest as in `bert.py`

Shapes are those of `bert.py`. The differences from BERT are:
- Tokens. Subwords of bytes, 50 265 of them, for BERT's 30 522 of characters; a text is enclosed in <s> and </s>.
- Positions. The table has 514 rows for 512 tokens: the first real token has row 2, wherever padding is.
- Segments. There is only one.
- Classes. Dropout is applied before the pooled layer, too.
- ε of the normalizations is 1e-5, PyTorch's default, for 1e-12.
- Training. Tokens are masked again in each epoch, sentences are not paired, batches hold 8 192 texts.
"""

from __future__ import annotations

from .bert import Bert, Config, fine_tuning, pre_training
from .card import Card, Divergence, Published, Result

Model = Bert

PRESETS = {"roberta-base": Config(vocab_size=50_265, token_types=1, first_position=2, eps=1e-5, drops_before=True)}

CARD = Card(
    title="RoBERTa: A robustly optimized BERT pretraining approach",
    authors="Y. Liu, M. Ott, N. Goyal, J. Du, M. Joshi, D. Chen, O. Levy, M. Lewis, L. Zettlemoyer, V. Stoyanov",
    year=2019,
    link="https://arxiv.org/abs/1907.11692",
    family="transformer",
    equation="z⁰_t = LN(E[token_t] + S[0] + P[t + 2]);  z ← LN(z + MHA(z));  z ← LN(z + MLP(z))",
    oracle="transformers' RobertaForMaskedLM, RobertaForSequenceClassification and RobertaForTokenClassification",
    published={
        "roberta-base": Published(
            124_697_433,
            16_190_373_888,
            (128,),
            "the authors' repository names 125M; here with the masked head, parameters as on transformers' "
            "RobertaForMaskedLM, multiply-adds from the sizes, output layer and all",
        )
    },
    divergences=(
        Divergence(
            "positions",
            paper="not specified; the authors' library counts from 2 on: row 1 is for padding, whose token id is 1, "
            "and row 0 is unused",
            here="counted over the tokens that the mask marks as real",
            common="counted over tokens whose id is not that of padding, 1 (transformers): the same if the mask "
            "hides exactly these",
        ),
        Divergence(
            "segments",
            paper="not specified; none in the authors' library",
            here="one row, added to every token",
            common="as here (transformers)",
        ),
        Divergence(
            "pooler",
            paper="not specified; in the authors' library only for classification, and trained with it",
            here="the same",
            common="also in transformers' RobertaModel, where it is untrained",
        ),
        Divergence(
            "initialization",
            paper="not specified; the authors' library: normal, standard deviation 0.02",
            here="as in bert.py: truncated at two standard deviations",
            common="normal, standard deviation 0.02 (transformers)",
        ),
        Divergence(
            "clipping in fine-tuning",
            paper="not specified; none in the authors' library",
            here="at 1, as BERT's",
        ),
    ),
    # Its appendix: a rate of 1e-5 to 3e-5, batches of 16 or 32, at most 10 epochs, decay 0.1, a rise over 0.06.
    results={
        "roberta-base": (
            Result(
                "GLUE",
                {
                    "MNLI": 87.6,
                    "QNLI": 92.8,
                    "QQP": 91.9,
                    "RTE": 78.7,
                    "SST-2": 94.8,
                    "MRPC": 90.2,
                    "CoLA": 63.6,
                    "STS-B": 91.2,
                },
                "development set, one task at a time",
                "the authors' release (fairseq)",
                unit="",
            ),
        ),
    },
    settings={"roberta-base": pre_training(weight_decay=0.1, warmup=0.06, decay=0.94)},
    fine_tuning={
        "roberta-base": fine_tuning(lr=2e-5, weight_decay=0.1, warmup=0.06, decay=0.94),
    },
)
