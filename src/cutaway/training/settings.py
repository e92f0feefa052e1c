"""The settings of training. `cutaway train --help` prints them with those of the data."""

from __future__ import annotations

from dataclasses import dataclass

from ..settings import setting

OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "muon")
SCHEDULES = ("constant", "step", "cosine", "warmup-cosine", "noam", "one-cycle", "wsd", "linear")


@dataclass(frozen=True)
class TrainSettings:
    """How a model learns. A model's card may give other defaults for its presets; what is typed wins."""

    epochs: int = setting(20, "passes over the training part", low=1)
    updates: int | None = setting(
        None,
        "end after so many updates, with the schedule laid out over them; epochs are as many as that takes, unless "
        "they are given too",
        low=1,
    )
    minutes: float | None = setting(None, "time budget: training and its schedule end by then; 0 sets none", low=0.0)
    batch_size: int = setting(64, "examples in a step; 0 takes them all (full-batch descent)", low=0)
    batch_tokens: int = setting(
        0, "tokens in a step, padding among them, instead of batch_size: long texts then come in smaller batches", low=0
    )
    accumulate: int = setting(1, "steps whose gradients are added before one update", low=1)
    optimizer: str = setting("adamw", "how gradients become updates", choices=OPTIMIZERS)
    lr: float = setting(1e-3, "learning rate", low=0.0, high=1e30)
    momentum: float = setting(0.9, "momentum of momentum, nesterov and muon", low=0.0, high=0.9999)
    weight_decay: float = setting(0.01, "decay of weights; never of biases and norms", low=0.0, high=1.0)
    schedule: str = setting("warmup-cosine", "how the learning rate moves", choices=SCHEDULES)
    warmup: float = setting(
        0.05, "share of the updates over which the rate rises (noam: at least one update)", low=0.0, high=1.0
    )
    milestones: tuple[float, ...] = setting(
        (0.5, 0.75), "step: shares of training after which the rate drops", low=0.0, high=1.0
    )
    gamma: float = setting(0.1, "step: the factor at each milestone", low=0.0, high=1.0)
    decay: float = setting(0.2, "wsd: share of the updates over which the rate falls at the end", low=0.0, high=1.0)
    clip: float = setting(0.0, "largest norm of the whole gradient; 0 does not clip", low=0.0)
    loss: str | None = setting(
        None,
        "the loss, where it is not the model's or the task's own",
        choices=("cross_entropy", "perceptron", "map", "mse", "half_squared_error", "mae"),
    )
    label_smoothing: float = setting(0.0, "share of the target spread over all classes", low=0.0, high=0.99)
    class_weights: str = setting(
        "none", "balanced weighs each class by the inverse of its share", choices=("none", "balanced")
    )
    sampling: str = setting(
        "shuffle",
        "shuffle takes every example once an epoch; balanced draws as many, every class as often",
        choices=("shuffle", "balanced"),
    )
    ema: float = setting(
        0.0,
        "decay of a moving average of the weights, used for evaluation; 0 keeps none",
        low=0.0,
        high=0.99999,
    )
    average: int = setting(
        0, "keep the mean of the weights behind the last so many epochs, instead of the best; 0 keeps the best", low=0
    )
    chunk: int | None = setting(
        None,
        "tokens whose outputs are held at a time, where each token has as many as there are words; 0 holds them all, "
        "auto decides by how many these are",
        low=0,
    )
    patience: int = setting(
        0, "early stopping: epochs without a better validation score (monitor); 0 never stops early", low=0
    )
    monitor: str | None = setting(
        None,
        "the validation metric that decides which epoch is best, for early stopping and for the weights that are kept, "
        "or loss; auto is the task's own: accuracy, RMSE, or loss",
    )
    beams: int = setting(
        1,
        "of sequences: beginnings that are kept when the test part is decoded; 1 takes the likeliest each time",
        low=1,
    )
    alpha: float = setting(0.6, "of sequences: beams prefer longer answers with a larger one; 0 prefers none", low=0.0)
    test_flip: bool = setting(False, "evaluate on each image and on its mirror image, and average their logits")
    weights: str | None = setting(
        None,
        "begin with these: a run, a model's folder or file, Hugging Face's folder, torchvision's .pth of this network; "
        "or hub:ORG/NAME[@REVISION], which fetches safetensors from the Hugging Face Hub",
    )
    vectors: str | None = setting(
        None, "begin the embedding of text with these word vectors: word2vec's text or binary file"
    )
    freeze: tuple[str, ...] = setting((), "layers that do not learn, by name or pattern: conv1,layer*,*.bias")
    head_epochs: int | None = setting(
        None, "epochs at the beginning in which the head alone learns; auto: 1 where weights leave it new", low=0
    )
    layer_decay: float | None = setting(
        None,
        "factor on the rate for each group of layers further from the head; auto: 0.8 with weights, else 1",
        low=0.01,
        high=1.0,
    )
    seed: int = setting(0, "seed of weights, order and augmentation", low=0)
    device: str = setting(
        "auto", "where to train: auto, cpu, cuda, cuda:N, mps; auto takes the fastest device that is here"
    )
    precision: str = setting(
        "auto",
        "auto uses bfloat16 where the hardware has it",
        choices=("auto", "float32", "bfloat16", "float64"),
    )
    compile: bool = setting(False, "compile the model with torch.compile")
    channels_last: bool | None = setting(None, "memory format of images; auto uses it for convolutions")
    threads: int | None = setting(None, "CPU threads", low=1, high=1024)
    memory_fraction: float = setting(
        0.9,
        "refuse to train where the estimate takes more than this fraction of the memory that is free; 0 never refuses",
        low=0.0,
        high=1.0,
    )
    eval_batch_size: int | None = setting(None, "examples in an evaluation step", low=1)
    save_minutes: float = setting(5.0, "minutes between checkpoints within an epoch", low=0.0)
    snapshots: int = setting(
        0, "copies of the weights to keep along the way, for looking back in time; 0 keeps none", low=0, high=10_000
    )
    tensorboard: bool = setting(True, "write TensorBoard's event file")
