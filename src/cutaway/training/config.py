"""Settings of training. `cutaway train --help all` prints them with those of the data."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.config import Topic, setting

OBJECTIVES = ("supervised", "simclr", "mae", "maml", "prototypes", "ewc", "rehearsal", "joint", "star", "grpo")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "muon")
PATTERN = "2:4"  # sparsity pattern with hardware support
SCHEDULES = ("constant", "step", "cosine", "warmup-cosine", "noam", "one-cycle", "wsd", "linear")


@dataclass(frozen=True)
class TrainSettings:
    """Settings of training.

    A model's card may set other defaults for its presets; settings from the user take precedence.
    """

    TRAINING = Topic("objective, length, batches and seed")
    objective: str = setting(
        "supervised",
        "training objective. supervised: the targets of the data; simclr: contrastive pre-training without labels, "
        "which matches two views of an image or series among the views of others, for weights=RUN of another training; "
        "mae: masked autoencoder pre-training, which reconstructs hidden image patches with a Vision Transformer; "
        "maml and prototypes: few-shot learning of new classes, in episodes; for a sequence of tasks, "
        "ewc protects weights that were important to earlier tasks, rehearsal replays stored examples, and joint "
        "trains on all tasks at once; for problems, star (expert iteration) and grpo (policy gradients) train on the "
        "network's own verified solutions",
        choices=OBJECTIVES,
    )
    epochs: int = setting(
        20,
        "passes over the training split; of a sequence of tasks, over each of them; a forecast is learned in 400 steps "
        "at least, in batches of 16 where its windows are too few for that, and word vectors in 3000 steps or 100 "
        "epochs, unless epochs, max_steps or batch_size is given",
        low=1,
        common=True,
    )
    max_steps: int | None = setting(
        None,
        "optimizer steps to train, over which the schedule extends; the number of epochs follows, unless it is "
        "given too",
        low=1,
    )
    minutes: float | None = setting(
        None, "time budget: training and its schedule end by then; 0 sets none", low=0.0, common=True
    )
    batch_size: int = setting(
        64,
        "mini-batch: examples in a step, episodes of few-shot learning; 0 takes them all (full-batch gradient descent)",
        low=0,
        common=True,
    )
    batch_tokens: int = setting(
        0, "tokens in a step, padding among them, instead of batch_size: long texts then come in smaller batches", low=0
    )
    accumulate: int = setting(
        1, "gradient accumulation: batches whose gradients are added before one optimizer step", low=1
    )
    seed: int = setting(0, "seed of weights, order and augmentation", low=0, common=True)

    OPTIMIZER = Topic("optimizer, learning rate and its schedule, gradient clipping")
    optimizer: str = setting("adamw", "the optimizer", choices=OPTIMIZERS, common=True)
    lr: float = setting(1e-3, "learning rate", low=0.0, high=1e30, common=True)
    momentum: float = setting(0.9, "momentum of momentum, nesterov and muon", low=0.0, high=0.9999)
    betas: tuple[float, ...] = setting(
        (0.9, 0.999), "decay rates of the two moments, of adam, adamw and muon's adamw", low=0.0, high=0.999999
    )
    eps: float | None = setting(
        None,
        "ε added to the denominator of adagrad, rmsprop, adadelta, adam and adamw; auto is PyTorch's: 1e-10 of "
        "adagrad, 1e-6 of adadelta, else 1e-8",
        low=0.0,
    )
    alpha: float = setting(0.99, "smoothing constant of rmsprop", low=0.0, high=0.999999)
    weight_decay: float = setting(
        0.01, "weight decay: shrinks weights in every step; never biases and norms", low=0.0, high=1.0, common=True
    )
    schedule: str = setting("warmup-cosine", "learning-rate schedule", choices=SCHEDULES, common=True)
    warmup: float = setting(
        0.05, "warm-up: fraction of the steps over which the rate rises (noam: at least one step)", low=0.0, high=1.0
    )
    milestones: tuple[float, ...] = setting(
        (0.5, 0.75), "step: fractions of training after which the rate drops", low=0.0, high=1.0
    )
    gamma: float = setting(0.1, "step: the factor at each milestone", low=0.0, high=1.0)
    decay: float = setting(0.2, "wsd: fraction of the steps over which the rate falls at the end", low=0.0, high=1.0)
    grad_clip: float = setting(0.0, "gradient clipping: largest norm of the whole gradient; 0 does not clip", low=0.0)

    LOSS = Topic("loss, label smoothing, class weights and sampling")
    loss: str | None = setting(
        None,
        "the loss, where it is not the model's or the task's own",
        choices=("cross_entropy", "perceptron", "map", "mse", "half_squared_error", "mae", "dice"),
    )
    label_smoothing: float = setting(
        0.0, "label smoothing: fraction of the target spread over all classes", low=0.0, high=0.99
    )
    class_weights: str = setting(
        "none", "balanced weighs each class by the inverse of its frequency", choices=("none", "balanced")
    )
    sampling: str = setting(
        "shuffle",
        "shuffle takes every example once an epoch; balanced draws as many, every class as often",
        choices=("shuffle", "balanced"),
    )
    loss_chunk: int | None = setting(
        None,
        "chunked cross-entropy: tokens held at a time, where each has a logit for every word; 0 holds them all, auto "
        "decides by how many these are",
        low=0,
    )

    EVALUATION = Topic("early stopping, averaged weights, beam search")
    patience: int = setting(
        0,
        "early stopping: epochs without a better validation score; 0 never stops early, and monitor names the score",
        low=0,
        common=True,
    )
    monitor: str | None = setting(
        None,
        "the validation metric that decides which epoch is best, for early stopping and for the weights that are kept, "
        "or loss; auto is the task's own: accuracy, RMSE, or loss",
    )
    ema: float = setting(
        0.0,
        "exponential moving average of the weights, used for evaluation: its decay; 0 keeps none",
        low=0.0,
        high=0.99999,
    )
    average_epochs: int = setting(
        0, "checkpoint averaging: number of last epochs whose mean is kept; 0 keeps the best epoch", low=0
    )
    num_beams: int = setting(
        1,
        "beam search: hypotheses that are kept when the test split is decoded; 1 is greedy",
        low=1,
    )
    length_penalty: float = setting(
        0.6, "length penalty of beam search: a larger one prefers longer answers; 0 prefers none", low=0.0
    )
    tta: bool = setting(False, "test-time augmentation: flip, average the logits of each image and of its mirror image")
    eval_batch_size: int | None = setting(None, "examples in an evaluation step", low=1)

    FINE_TUNING = Topic("pretrained weights, frozen layers, LoRA")
    weights: str | None = setting(
        None,
        "begin with these: a run, a model's folder or file, Hugging Face's folder, torchvision's .pth of this network; "
        "or hub:ORG/NAME[@REVISION], which fetches safetensors from the Hugging Face Hub",
        common=True,
    )
    vectors: str | None = setting(
        None, "begin the embedding of text with these word vectors: word2vec's text or binary file"
    )
    freeze: tuple[str, ...] = setting((), "frozen layers, by name or pattern: conv1,layer*,*.bias")
    freeze_epochs: int | None = setting(
        None, "epochs with a frozen backbone (linear probing first); auto: 1 where weights leave the head new", low=0
    )
    layer_decay: float | None = setting(
        None,
        "layer-wise learning-rate decay: factor for each group of layers further from the head; auto: 0.8 with "
        "weights, else 1",
        low=0.01,
        high=1.0,
    )
    lora: int | None = setting(
        None,
        "LoRA, low-rank adaptation: rank of the update of linear layers, whose weights are frozen; the head "
        "is trained too, unless it predicts tokens",
        low=1,
    )
    lora_alpha: float = setting(16.0, "LoRA: the update is scaled by lora_alpha / lora", low=0.0)
    lora_layers: tuple[str, ...] = setting(
        (), "LoRA: the linear layers, by name or pattern; auto: those of attention's queries, keys and values"
    )

    DISTILLATION = Topic("learning from a teacher's probabilities")
    teacher: str | None = setting(
        None, "knowledge distillation: a run on the same data whose probabilities are targets in addition to the labels"
    )
    temperature: float | None = setting(
        None,
        "what logits are divided by in distillation, auto 4, and in drawing solutions for star and grpo, auto 1, and "
        "cosine similarities in simclr, auto 0.5; a larger one evens probabilities out",
        low=0.01,
    )
    teacher_weight: float = setting(
        0.7, "distillation: weight of the teacher's probabilities, against that of the labels", low=0.0, high=1.0
    )

    SELF_SUPERVISED = Topic("masked autoencoding")
    mask_ratio: float = setting(0.75, "mae: fraction of the patches of an image that are masked", low=0.01, high=0.99)
    decoder_dim: int = setting(128, "mae: numbers in a token of the decoder, which learning alone needs", low=8)
    norm_pix_loss: bool = setting(
        True, "mae: bring each masked patch to mean 0 and standard deviation 1 before it is compared"
    )

    FEW_SHOT = Topic("new classes from a few examples: MAML, prototypes")
    inner_lr: float = setting(0.4, "maml: inner learning rate, for the support set of an episode", low=0.0)
    inner_steps: int = setting(1, "maml: inner steps of gradient descent on the support set of an episode", low=1)
    first_order: bool = setting(
        False, "maml: take the gradient on the support for a constant, which saves its second derivatives"
    )

    CONTINUAL = Topic("a sequence of tasks: EWC, rehearsal")
    ewc_lambda: float = setting(
        1000.0, "elastic weight consolidation: strength of the penalty that holds weights of earlier tasks", low=0.0
    )
    fisher_samples: int = setting(
        500, "elastic weight consolidation: training examples of a task that its Fisher information is taken of", low=1
    )
    buffer: int = setting(20, "rehearsal: examples that are stored of each class of each task", low=1)

    PROBLEMS = Topic("solving problems: forms, expert iteration, GRPO")
    group_size: int = setting(8, "star, grpo: solutions that are drawn of each problem", low=2)
    kl_weight: float = setting(
        0.04, "grpo: weight of the Kullback-Leibler divergence from the network as it was at first", low=0.0
    )

    ADVERSARIAL = Topic("adversarial training")
    attack: str | None = setting(
        None, "adversarial training: learn from images that are changed so that the model errs", choices=("fgsm", "pgd")
    )
    attack_eps: float = setting(
        0.03, "adversarial training: how far a pixel may move, of its range 0 to 1", low=0.0, high=1.0
    )
    attack_steps: int = setting(7, "adversarial training: steps of pgd", low=1)

    PRUNING = Topic("sparse weights, pruned channels")
    sparsity: float = setting(
        0.0,
        "magnitude pruning: fraction of the weights of linear, convolutional and recurrent layers set to 0 during "
        "training, the smallest first; weights that are 0 in weights=PATH stay 0",
        low=0.0,
        high=0.999,
    )
    prune_scope: str = setting(
        "global",
        "magnitude pruning: the smallest weights of the whole model (global), or of each layer",
        choices=("global", "layer"),
    )
    prune_until: float = setting(
        0.5,
        "magnitude pruning: fraction of training after which sparsity is reached, by a cubic schedule; 0 prunes at "
        "once",
        low=0.0,
        high=1.0,
    )
    prune_pattern: str = setting(
        "none",
        "semi-structured pruning: in the pattern 2:4, of each four consecutive inputs of linear layers and "
        "convolutions the smaller two become 0 before the model learns",
        choices=("none", PATTERN),
    )
    prune_channels: float = setting(
        0.0,
        "structured pruning of weights=PATH: fraction of the channels and hidden units of every layer that are taken "
        "out before it learns on, those with the smallest norms, where the layers around allow it",
        low=0.0,
        high=0.95,
    )

    QUANTIZATION = Topic("quantization-aware training")
    qat: str = setting(
        "none",
        "quantization-aware training: the model learns with weights and inputs rounded as `cutaway quantize` rounds "
        "them by that method",
        choices=("none", "static", "dynamic", "weight-only"),
    )
    qat_group: int = setting(
        0, "quantization-aware training: number of 4-bit weights that share a scale; 0 is 8 bits", low=0
    )

    HARDWARE = Topic("device, precision, compilation, memory")
    device: str = setting(
        "auto", "where to train: auto, cpu, cuda, cuda:N, mps; auto takes the fastest device that is here", common=True
    )
    precision: str = setting(
        "auto",
        "auto uses bfloat16 where the hardware has it",
        choices=("auto", "float32", "bfloat16", "float64"),
    )
    compile: bool = setting(False, "compile the model with torch.compile")
    channels_last: bool | None = setting(
        None, "memory format of images; auto uses it for convolutions of the catalog's models, not for your own modules"
    )
    threads: int | None = setting(None, "CPU threads", low=1, high=1024)
    memory_fraction: float = setting(
        0.9,
        "train only if the estimate is at most this fraction of the free memory; 0 disables the check",
        low=0.0,
        high=1.0,
    )
    recompute: str = setting(
        "none",
        "activation checkpointing: recompute activations in the backward pass instead of storing them. full: each "
        "block, from its input; selective: all of a block except matrix products with weights, convolutions and fused "
        "attention",
        choices=("none", "selective", "full"),
    )

    DISTRIBUTED = Topic("several processes and GPUs")
    processes: int = setting(
        1,
        "distributed data parallel: processes on this machine that share each batch; torchrun starts them on several "
        "machines. batch_size is that of all together",
        low=1,
        high=1024,
    )
    parallel: str = setting(
        "auto",
        "strategy of several processes. ddp: each holds the whole model; fsdp: each holds a shard of every weight, "
        "gradient and optimizer state; hsdp: shards within each machine; auto: ddp if it fits into memory",
        choices=("auto", "ddp", "fsdp", "hsdp"),
    )
    tensor_parallel: int = setting(
        1,
        "tensor parallelism of Transformers: processes that share the heads of each attention and the hidden units of "
        "each MLP, and see the same examples; the others share batches, as parallel says",
        low=1,
        high=1024,
    )
    sync_batchnorm: bool = setting(
        True, "batch normalization over the batches of all processes, as one process has them"
    )
    max_restarts: int = setting(
        0, "of several processes: how often all are started again, from the last checkpoint, when one is lost", low=0
    )

    OUTPUT = Topic("checkpoints, snapshots, trackers: TensorBoard, W&B, MLflow")
    save_minutes: float = setting(5.0, "minutes between checkpoints within an epoch", low=0.0)
    snapshots: int = setting(
        0, "copies of the weights to keep along the way, for looking back in time; 0 keeps none", low=0, high=10_000
    )
    tensorboard: bool | None = setting(None, "write TensorBoard's event file; auto: if TensorBoard is installed")
    tracker: str | None = setting(
        None,
        "experiment tracker that gets learning curves, settings and test metrics: wandb (Weights & Biases), mlflow, or "
        "tensorboard; auto uses none",
        choices=("wandb", "mlflow", "tensorboard"),
    )

    @property
    def in_parts(self) -> bool:
        """Return whether the weights are sharded over processes."""
        return self.tensor_parallel > 1 or self.parallel in ("fsdp", "hsdp")
