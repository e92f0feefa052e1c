"""Types of model names, view names and settings, by which type checkers find a typo.

`python docs/make_types.py` writes this file from the tables of models, views and settings.

    cutaway.train("mpl", data)              # error: no such model
    cutaway.train("mlp", data, epoch=2)     # error: no such setting
    cutaway.look(run, view="netwrk")        # error: no such view

Names that are known only when the program runs are wrapped: `cutaway.train(cutaway.AnyName(sys.argv[1]), data)`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict


class AnyName(str):
    """Name of a model or view that is known only at run time, where a type checker expects one of the known names."""

    __slots__ = ()


PresetName = Literal[
    "airbench94",
    "albert-base-v2",
    "alexnet",
    "alexnet-2012",
    "bart-base",
    "bart-large",
    "bert-base-uncased",
    "bert-large-uncased",
    "cellnet",
    "cellnet-small",
    "cnn1d",
    "cnn-attention",
    "cnn-lstm",
    "collobert-window",
    "collobert-sentence",
    "conv4",
    "conv4-strided",
    "convnext-tiny",
    "convnext-small",
    "convnext-base",
    "convnext-micro",
    "ctc-conv-gru",
    "dcnn",
    "ddpm-unet",
    "ddpm-unet-small",
    "deeplabv3-resnet18",
    "deeplabv3-resnet50",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "densenet-40-12",
    "densenet-bc-100-12",
    "distilbert-base",
    "efficientnet-b0",
    "efficientnet-b1",
    "efficientnet-b2",
    "fcn-resnet18",
    "fcn-resnet50",
    "fcos-resnet50",
    "fcos-resnet18-small",
    "gae",
    "gat",
    "gcn",
    "gin",
    "gin-eps",
    "gine",
    "googlenet",
    "googlenet-2014",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "graphconv",
    "graphsage",
    "gru",
    "gru-mnist1d",
    "image-gpt",
    "image-gpt-s",
    "inception-v3",
    "lenet5",
    "lenet5-modern",
    "linear",
    "logistic",
    "softmax",
    "lstm",
    "mlp",
    "mobilenet-v2",
    "mpnn",
    "parallel-transformer",
    "patchtst",
    "patchtst-small",
    "perceptron",
    "r3d-18",
    "r3d-18-small",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnet50-v1",
    "resnet101-v1",
    "resnet152-v1",
    "resnet20",
    "resnet32",
    "resnet44",
    "resnet56",
    "resnet110",
    "resnet18-v2",
    "resnet34-v2",
    "resnet50-v2",
    "resnet101-v2",
    "resnet152-v2",
    "resnet200-v2",
    "resnet20-v2",
    "resnet56-v2",
    "resnet110-v2",
    "resnet164-v2",
    "rnn",
    "roberta-base",
    "seq2seq-gru",
    "show-attend-tell",
    "simplecnn",
    "spiking-mlp",
    "squeezenet-1.0",
    "squeezenet-1.1",
    "t5-small",
    "t5-base",
    "textcnn",
    "transformer-base",
    "transformer-big",
    "transformer-tiny",
    "transformer-asr",
    "whisper-tiny",
    "whisper-base",
    "whisper-small",
    "transformer-encoder",
    "transformer-encoder-base",
    "transformer-forecast",
    "unet",
    "unet-small",
    "vae",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "vgg11-bn",
    "vgg13-bn",
    "vgg16-bn",
    "vgg19-bn",
    "timesformer",
    "video-transformer",
    "vit-tiny/16",
    "vit-small/16",
    "vit-base/16",
    "vit-base/32",
    "vit-large/16",
    "vit-gpt2",
    "vit-gpt2-small",
    "word2vec-skipgram",
    "word2vec-cbow",
]

ViewName = Literal[
    "network",
    "curves",
    "results",
    "boundary",
    "function",
    "backprop",
    "filters",
    "features",
    "field",
    "arithmetic",
    "normalization",
    "attention",
    "caption",
    "thoughts",
    "positions",
    "embeddings",
    "gates",
    "spikes",
    "alignment",
    "denoising",
    "latent",
    "pixels",
    "graph",
    "attribution",
    "adversarial",
    "gradients",
    "quantization",
    "time",
]


class DataOptions(TypedDict, total=False):
    """Settings of the data."""

    target: str | os.PathLike[str] | None
    ignore: Sequence[str] | str
    missing: Literal["error", "drop", "fill"]
    max_samples: int | Literal["auto"] | None
    memory: int
    workers: int | Literal["auto"] | None
    group: str | os.PathLike[str] | None
    fold: int | Literal["auto"] | None
    folds: int
    split_seed: int
    types: Sequence[str] | str
    separator: Literal["auto", ",", ";", "tab", "|"]
    decimal: Literal["auto", ".", ","]
    encoding: str | os.PathLike[str]
    header: bool | Literal["auto"] | None
    quoting: Literal["auto", "standard", "none"]
    missing_values: Sequence[str] | str
    scale: Literal["standard", "quantile", "none"]
    noise: float | Literal["auto"] | None
    count: int | Literal["auto"] | None
    image_size: int | Literal["auto"] | None
    resize: Literal["auto", "crop", "stretch", "pad"]
    color: Literal["auto", "rgb", "gray"]
    palette_size: int
    flip: bool
    crop: int
    color_jitter: float
    cutout: int
    mixup: float
    text: str | os.PathLike[str] | None
    pairs: bool
    tokenizer: str | os.PathLike[str]
    special_tokens: bool | Literal["auto"] | None
    joint_vocab: bool | Literal["auto"] | None
    vocab_size: int
    min_count: int
    lower: bool | Literal["auto"] | None
    length: int | Literal["auto"] | None
    window: int
    subsample: float
    stateful: bool | Literal["auto"] | None
    documents: bool
    mask_prob: float
    whole_words: bool
    forecast: Sequence[str] | str
    time: str | os.PathLike[str] | None
    id: str | os.PathLike[str] | None
    lookback: int | Literal["auto"] | None
    horizon: int | Literal["auto"] | None
    season_length: int | Literal["auto"] | None
    known_future: Sequence[str] | str
    calendar: Sequence[str] | str
    gaps: Literal["error", "fill", "skip"]
    rate: int | Literal["auto"] | None
    n_mels: int
    seconds: float | Literal["auto"] | None
    frames: int
    num_neighbors: Sequence[int] | int | str
    inductive: bool
    edge_attr: bool | Literal["auto"] | None
    links: bool
    smiles: str | os.PathLike[str] | None
    ways: int
    shots: int
    queries: int
    tasks: str | os.PathLike[str] | None
    form: Sequence[str] | str


class PrepareOptions(DataOptions, total=False):
    """Settings of `prepare`."""

    workers: int | Literal["auto"] | None
    shard_size: int
    held_out: int
    sample: int


class TrainOptions(DataOptions, total=False):
    """Settings of `train`, `check` and `prune`."""

    objective: Literal["supervised", "simclr", "mae", "maml", "prototypes", "ewc", "rehearsal", "joint", "star", "grpo"]
    epochs: int
    max_steps: int | Literal["auto"] | None
    minutes: float | Literal["auto"] | None
    batch_size: int
    batch_tokens: int
    accumulate: int
    seed: int
    optimizer: Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "muon"]
    lr: float
    momentum: float
    betas: Sequence[float] | float | str
    eps: float | Literal["auto"] | None
    alpha: float
    weight_decay: float
    schedule: Literal["constant", "step", "cosine", "warmup-cosine", "noam", "one-cycle", "wsd", "linear"]
    warmup: float
    milestones: Sequence[float] | float | str
    gamma: float
    decay: float
    grad_clip: float
    loss: Literal["cross_entropy", "perceptron", "map", "mse", "half_squared_error", "mae", "dice", "auto"] | None
    label_smoothing: float
    class_weights: Literal["none", "balanced"]
    sampling: Literal["shuffle", "balanced"]
    loss_chunk: int | Literal["auto"] | None
    patience: int
    monitor: str | os.PathLike[str] | None
    ema: float
    average_epochs: int
    num_beams: int
    length_penalty: float
    tta: bool
    eval_batch_size: int | Literal["auto"] | None
    weights: str | os.PathLike[str] | None
    vectors: str | os.PathLike[str] | None
    freeze: Sequence[str] | str
    freeze_epochs: int | Literal["auto"] | None
    layer_decay: float | Literal["auto"] | None
    lora: int | Literal["auto"] | None
    lora_alpha: float
    lora_layers: Sequence[str] | str
    teacher: str | os.PathLike[str] | None
    temperature: float | Literal["auto"] | None
    teacher_weight: float
    mask_ratio: float
    decoder_dim: int
    norm_pix_loss: bool
    inner_lr: float
    inner_steps: int
    first_order: bool
    ewc_lambda: float
    fisher_samples: int
    buffer: int
    group_size: int
    kl_weight: float
    attack: Literal["fgsm", "pgd", "auto"] | None
    attack_eps: float
    attack_steps: int
    sparsity: float
    prune_scope: Literal["global", "layer"]
    prune_until: float
    prune_pattern: Literal["none", "2:4"]
    prune_channels: float
    qat: Literal["none", "static", "dynamic", "weight-only"]
    qat_group: int
    device: str | os.PathLike[str]
    precision: Literal["auto", "float32", "bfloat16", "float64"]
    compile: bool
    channels_last: bool | Literal["auto"] | None
    threads: int | Literal["auto"] | None
    memory_fraction: float
    recompute: Literal["none", "selective", "full"]
    processes: int
    parallel: Literal["auto", "ddp", "fsdp", "hsdp"]
    tensor_parallel: int
    sync_batchnorm: bool
    max_restarts: int
    save_minutes: float
    snapshots: int
    tensorboard: bool | Literal["auto"] | None
    tracker: Literal["wandb", "mlflow", "tensorboard", "auto"] | None


class PlanOptions(TrainOptions, total=False):
    """Settings of `plan`."""

    gpu: str | os.PathLike[str] | None
    gpus: int
    gpus_per_node: int
    utilization: float
    peak: float | Literal["auto"] | None
    gpu_memory: float | Literal["auto"] | None
    network: float
    price: float | Literal["auto"] | None
    dry_run: bool


class CompareOptions(TrainOptions, total=False):
    """Settings of `compare`."""

    seeds: int
    trials: int
    macs: float | Literal["auto"] | None
    jobs: int | Literal["auto"] | None
    baselines: bool


class QuantizeOptions(TypedDict, total=False):
    """Settings of `quantize`."""

    method: Literal["auto", "static", "dynamic", "weight-only", "bfloat16", "float16"]
    bits: int
    group: int
    calibration: int
    qat: int
    qat_lr: float | Literal["auto"] | None


class SearchOptions(TypedDict, total=False):
    """Settings of `search`, any of which may be a range or choices."""

    target: Any
    ignore: Any
    missing: Any
    max_samples: Any
    memory: Any
    workers: Any
    group: Any
    fold: Any
    folds: Any
    split_seed: Any
    types: Any
    separator: Any
    decimal: Any
    encoding: Any
    header: Any
    quoting: Any
    missing_values: Any
    scale: Any
    noise: Any
    count: Any
    image_size: Any
    resize: Any
    color: Any
    palette_size: Any
    flip: Any
    crop: Any
    color_jitter: Any
    cutout: Any
    mixup: Any
    text: Any
    pairs: Any
    tokenizer: Any
    special_tokens: Any
    joint_vocab: Any
    vocab_size: Any
    min_count: Any
    lower: Any
    length: Any
    window: Any
    subsample: Any
    stateful: Any
    documents: Any
    mask_prob: Any
    whole_words: Any
    forecast: Any
    time: Any
    id: Any
    lookback: Any
    horizon: Any
    season_length: Any
    known_future: Any
    calendar: Any
    gaps: Any
    rate: Any
    n_mels: Any
    seconds: Any
    frames: Any
    num_neighbors: Any
    inductive: Any
    edge_attr: Any
    links: Any
    smiles: Any
    ways: Any
    shots: Any
    queries: Any
    tasks: Any
    form: Any
    objective: Any
    epochs: Any
    max_steps: Any
    minutes: Any
    batch_size: Any
    batch_tokens: Any
    accumulate: Any
    seed: Any
    optimizer: Any
    lr: Any
    momentum: Any
    betas: Any
    eps: Any
    alpha: Any
    weight_decay: Any
    schedule: Any
    warmup: Any
    milestones: Any
    gamma: Any
    decay: Any
    grad_clip: Any
    loss: Any
    label_smoothing: Any
    class_weights: Any
    sampling: Any
    loss_chunk: Any
    patience: Any
    monitor: Any
    ema: Any
    average_epochs: Any
    num_beams: Any
    length_penalty: Any
    tta: Any
    eval_batch_size: Any
    weights: Any
    vectors: Any
    freeze: Any
    freeze_epochs: Any
    layer_decay: Any
    lora: Any
    lora_alpha: Any
    lora_layers: Any
    teacher: Any
    temperature: Any
    teacher_weight: Any
    mask_ratio: Any
    decoder_dim: Any
    norm_pix_loss: Any
    inner_lr: Any
    inner_steps: Any
    first_order: Any
    ewc_lambda: Any
    fisher_samples: Any
    buffer: Any
    group_size: Any
    kl_weight: Any
    attack: Any
    attack_eps: Any
    attack_steps: Any
    sparsity: Any
    prune_scope: Any
    prune_until: Any
    prune_pattern: Any
    prune_channels: Any
    qat: Any
    qat_group: Any
    device: Any
    precision: Any
    compile: Any
    channels_last: Any
    threads: Any
    memory_fraction: Any
    recompute: Any
    processes: Any
    parallel: Any
    tensor_parallel: Any
    sync_batchnorm: Any
    max_restarts: Any
    save_minutes: Any
    snapshots: Any
    tensorboard: Any
    tracker: Any
    trials: Any
    sampler: Any
    pruner: Any
    max_macs: Any
    max_parameters: Any
    population: Any
    tournament: Any
    reinforce_lr: Any
    reinforce_decay: Any
    darts_epochs: Any
    darts_lr: Any
    darts_order: Any
