"""ALBERT: BERT with one block shared by all layers and a narrow embedding, a tenth of its parameters.

Z. Lan, M. Chen, S. Goodman, K. Gimpel, P. Sharma, R. Soricut, ALBERT: A lite BERT for self-supervised learning of
language representations, 2019 (ICLR 2020). <https://arxiv.org/abs/1909.11942>

    z⁰_t = W_e LN(E[token_t] + S[segment_t] + P[t]) + b_e           from 128 numbers to 768
    z ← LN(z + MHA(z)),   z ← LN(z + MLP(z))                        twelve times with the same weights
    masked:    p(token_t | the others) = softmax(E LN(GELU(W z_t + b)) + c),   W from 768 to 128 numbers

Shapes are those of `bert.py`, with an embedding of (N, T, 128). The differences from BERT are:
- The embedding, segments, positions and their normalization have 128 numbers, and are projected to 768.
- All layers share one block: fewer parameters, the same computation.
- GELU in its tanh form.
- Tokens: 30 000 sentencepiece subwords.
"""

from __future__ import annotations

from .bert import Bert, Config, fine_tuning, pre_training
from .card import Card, Divergence, Published, Result

Model = Bert

PRESETS = {
    "albert-base-v2": Config(
        vocab_size=30_000,
        embedding_dim=128,
        share_layers=True,
        activation="gelu-tanh",
        dropout=0.0,
        head_dropout=0.1,
        drops_mlp=False,
    )
}

CARD = Card(
    title="ALBERT: A lite BERT for self-supervised learning of language representations",
    authors="Z. Lan, M. Chen, S. Goodman, K. Gimpel, P. Sharma, R. Soricut",
    year=2019,
    link="https://arxiv.org/abs/1909.11942",
    family="transformer",
    equation="z⁰_t = W_e LN(E[token_t] + S[segment_t] + P[t]) + b_e;  z ← LN(z + MHA(z));  z ← LN(z + MLP(z)), shared",
    oracle="transformers' AlbertForMaskedLM, AlbertForSequenceClassification and AlbertForTokenClassification",
    published={
        "albert-base-v2": Published(
            11_221_680,
            11_690_311_680,
            (128,),
            "the paper names 12M; here with the masked head, parameters as on transformers' AlbertForMaskedLM, "
            "multiply-adds from the sizes, output layer and all",
        )
    },
    divergences=(
        Divergence(
            "pre-training",
            paper="masked n-grams of up to three words, and sentence-order prediction instead of next-sentence "
            "prediction",
            here="masked tokens only; there is no sentence-order head",
            common="both heads (transformers' AlbertForPreTraining)",
        ),
        Divergence(
            "dropout",
            paper="0.1; none in the second released version",
            here="none, except 0.1 before the classes; with model.dropout not on the output of the MLP",
            common="as here (transformers)",
        ),
        Divergence(
            "pooler",
            paper="trained with the sentence-order head",
            here="part of the class head; loaded from checkpoints that have it",
            common="part of the backbone (transformers' AlbertModel)",
        ),
        Divergence(
            "initialization",
            paper="not specified; the released code: normal, standard deviation 0.02, truncated at two standard "
            "deviations",
            here="as in the released code",
            common="normal, standard deviation 0.02, not truncated (transformers)",
        ),
        Divergence(
            "optimizer",
            paper="LAMB in pre-training",
            here="AdamW",
        ),
    ),
    # Its appendix: by the task a rate of 1e-5 to 5e-5, batches of 16 to 128; 1e-5 and 32 for SST-2.
    results={
        "albert-base-v2": (
            Result("MNLI", {"accuracy": 84.6}, "development set", "the authors' release"),
            Result("SST-2", {"accuracy": 92.9}, "development set", "the authors' release"),
            Result("SQuAD 1.1", {"EM": 83.2, "F1": 90.2}, "development set", "the authors' release"),
            Result("SQuAD 2.0", {"EM": 79.3, "F1": 82.1}, "development set", "the authors' release"),
            Result("RACE", {"accuracy": 66.8}, "test set", "the authors' release"),
        ),
    },
    settings={"albert-base-v2": pre_training()},
    fine_tuning={"albert-base-v2": fine_tuning(lr=1e-5)},
)
