"""DistilBERT: BERT with half of its layers, trained by distillation from the whole one.

V. Sanh, L. Debut, J. Chaumond, T. Wolf, DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter,
2019. <https://arxiv.org/abs/1910.01108>

    z⁰_t = LN(E[token_t] + P[t]),   the rest as in `bert.py`, with 6 layers
    classes:   p(class) = softmax(W_c ReLU(W_p z_1 + b_p) + b_c)

Shapes are those of `bert.py`. The differences from BERT are:
- Layers: 6 for 12.
- There are no segments, and the pooled layer of the head for classes uses ReLU.
"""

from __future__ import annotations

from .bert import Bert, Config, fine_tuning, pre_training
from .card import Card, Divergence, Published, Result

Model = Bert

PRESETS = {
    "distilbert-base": Config(
        layers=6,
        token_types=0,
        pooler_activation="relu",
        head_dropout=0.2,
        drops_tags_as_backbone=True,
        drops_attention=False,
    )
}

CARD = Card(
    title="DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
    authors="V. Sanh, L. Debut, J. Chaumond, T. Wolf",
    year=2019,
    link="https://arxiv.org/abs/1910.01108",
    family="transformer",
    equation="z⁰_t = LN(E[token_t] + P[t]);  z ← LN(z + MHA(z));  z ← LN(z + MLP(z))",
    oracle="transformers' DistilBertForMaskedLM, its ForSequenceClassification and its ForTokenClassification",
    published={
        "distilbert-base": Published(
            66_985_530,
            8_662_745_088,
            (128,),
            "the paper names 66M, without a head; here with the masked head, parameters as on transformers' "
            "DistilBertForMaskedLM, multiply-adds from the sizes, output layer and all",
        )
    },
    divergences=(
        Divergence(
            "learning",
            paper="distillation loss at a temperature, masked language modelling loss, and cosine distance to the "
            "teacher's hidden states; initialized with every second layer of the teacher",
            here="masked tokens only; initialized at random or with given weights",
        ),
        Divergence(
            "classes",
            paper="not specified",
            here="a ReLU layer, then dropout of 0.2, as in transformers",
        ),
        Divergence(
            "dropout",
            paper="not specified",
            here="0.1 on the embedding, the attention weights and the output of the MLP, not on that of attention",
            common="as here (the authors' code in transformers)",
        ),
        Divergence(
            "initialization",
            paper="the teacher's layers",
            here="as in bert.py: normal, standard deviation 0.02, truncated at two standard deviations",
            common="normal, standard deviation 0.02 (transformers)",
        ),
    ),
    # The paper gives no settings for fine-tuning; these are BERT's.
    results={
        "distilbert-base": (
            Result(
                "GLUE",
                {
                    "average": 77.0,
                    "CoLA": 51.3,
                    "MNLI": 82.1,
                    "MRPC": 87.5,
                    "QNLI": 89.2,
                    "QQP": 88.5,
                    "RTE": 59.9,
                    "SST-2": 91.3,
                    "STS-B": 86.9,
                    "WNLI": 56.3,
                },
                "development set",
                "the authors' release (transformers)",
                unit="",
            ),
            Result(
                "SQuAD 1.1", {"F1": 86.9}, "development set, distilled again", "the authors' release (transformers)"
            ),
        ),
    },
    settings={"distilbert-base": pre_training()},
    fine_tuning={"distilbert-base": fine_tuning(lr=5e-5)},
)
