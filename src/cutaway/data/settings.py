"""Data settings: the target, the split, preprocessing and augmentation; and those of shards."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.config import Topic, setting


@dataclass(frozen=True)
class DataSettings:
    """Settings that turn a source into examples."""

    DATA = Topic("target, examples that cannot be used, memory")
    target: str | None = setting(None, "the column to predict", common=True)
    ignore: tuple[str, ...] = setting((), "columns to leave out, comma-separated")
    missing: str = setting(
        "error",
        "examples that cannot be used: rows without a target, cells that are not numbers in a column of numbers, "
        "damaged images, recordings, videos and texts, those without a usable answer, boxes and masks that do not fit, "
        "molecules that are none, edges to no node, series of id= that are too short or damaged: error names them, "
        "drop leaves them out, fill treats those cells as missing",
        choices=("error", "drop", "fill"),
    )
    max_samples: int | None = setting(
        None, "use only this many training examples, drawn at random by split_seed", low=1
    )
    memory: int = setting(
        512,
        "MiB of decoded images, videos or spectrograms to hold; data that needs more is read again in every epoch",
        low=0,
    )
    workers: int | None = setting(
        None, "processes that read image files, threads for audio and video; 0 reads in this one", low=0, high=256
    )

    SPLITS = Topic("validation and test splits, cross-validation")
    val: float = setting(
        0.15,
        "fraction of the rows kept for validation, where the data has no such split; 0 keeps none",
        low=0.0,
        high=0.9,
        common=True,
    )
    test: float = setting(
        0.15,
        "fraction of the rows kept for the one test at the end, where the data has no such split; 0 keeps none",
        low=0.0,
        high=0.9,
        common=True,
    )
    group: str | None = setting(None, "a column whose equal values stay in one split")
    fold: int | None = setting(
        None, "cross-validation: test on this of the folds that split_seed makes; test is not drawn then", low=1
    )
    folds: int = setting(10, "cross-validation: how many folds", low=2, high=1000)
    split_seed: int = setting(0, "seed of the split: the same seed gives the same splits", low=0)

    TABLES = Topic("how a table is read and scaled")
    types: tuple[str, ...] = setting((), "columns whose inferred type is wrong: age:number,zip:category,day:date")
    separator: str = setting(
        "auto",
        "the separator between the cells of a table; auto infers it from the first line",
        choices=("auto", ",", ";", "tab", "|"),
    )
    decimal: str = setting(
        "auto",
        "the sign before decimals in a table: a point, or a comma as in 3,5; auto as its numbers show",
        choices=("auto", ".", ","),
    )
    encoding: str = setting("auto", "how the letters of a table are written, such as windows-1252; auto is UTF-8")
    header: bool | None = setting(
        None, "whether the first line of a table names its columns; false names them column_1, column_2, …"
    )
    quoting: str = setting(
        "auto",
        "quotes in a table of text: standard has them as marks around cells, none as text like any other; auto as the "
        "file parses",
        choices=("auto", "standard", "none"),
    )
    missing_values: tuple[str, ...] = setting(
        ("auto",),
        "words and numbers that mean a missing cell of a table, comma-separated, in upper or lower case; an empty cell "
        "is always missing; auto stands for NA, N/A, NaN, null, None, ?, -, NaT and <NA>, and auto,-999 adds to them",
    )
    scale: str = setting(
        "standard",
        "numbers of a table: standard (mean 0, standard deviation 1), quantile (ranks to a normal curve), none",
        choices=("standard", "quantile", "none"),
    )

    POINTS = Topic("generated points in the plane")
    noise: float | None = setting(
        None, "points in the plane: the standard deviation of their noise; auto as the set has it", low=0.0, high=10.0
    )
    count: int | None = setting(None, "points in the plane: how many; auto as the set has it", low=20, high=100_000)

    IMAGES = Topic("size and colour of images")
    image_size: int | None = setting(None, "height and width that images are brought to", low=1, high=4096, common=True)
    resize: str = setting(
        "auto",
        "how an image is brought to image_size: crop (shorter side, then the centre), stretch, pad; "
        "auto pads where a few pixels are missing, crops otherwise",
        choices=("auto", "crop", "stretch", "pad"),
    )
    color: str = setting(
        "auto", "colours of images: rgb, gray, or as most files have them", choices=("auto", "rgb", "gray")
    )
    palette_size: int = setting(
        64, "image tokens: colours or grey levels of the palette; images with fewer keep theirs", low=2, high=4096
    )

    AUGMENTATION = Topic("random changes of training images")
    flip: bool = setting(False, "augmentation: mirror half of the training images left to right")
    crop: int = setting(
        0, "augmentation: pad training images by this many pixels and crop a random window", low=0, high=512
    )
    color_jitter: float = setting(
        0.0, "augmentation: change brightness, contrast and saturation by up to this fraction", low=0.0, high=1.0
    )
    cutout: int = setting(0, "augmentation: side of a square that is blanked in each training image", low=0, high=4096)
    mixup: float = setting(
        0.0, "augmentation: blend pairs of examples, the fraction from Beta(mixup, mixup)", low=0.0, high=10.0
    )

    TEXT = Topic("tokens, vocabulary, masked tokens, word vectors")
    text: str | None = setting(None, "the column that holds the text, where a table is to be read as text")
    pairs: bool = setting(
        False, "sequence-to-sequence: the file holds parallel data, a tab between source and target; or two files, a,b"
    )
    tokenizer: str = setting(
        "auto",
        "how text is cut: characters, words, bpe, wordpiece; or a tokenizer.json, or a run or folder that holds one; "
        "auto takes that of the weights, where these have one, else what suits the data",
    )
    special_tokens: bool | None = setting(
        None, "special tokens: one before each text and one after it, as BERT has them; auto as the model asks"
    )
    joint_vocab: bool | None = setting(
        None, "joint vocabulary: one tokenizer for source and target; auto as the model asks"
    )
    vocab_size: int = setting(
        30_000, "maximum number of tokens in the vocabulary; rarer ones are unknown", low=3, high=1_000_000
    )
    min_count: int = setting(1, "words that occur less often in the training split are unknown", low=1)
    lower: bool | None = setting(None, "write text in lower case first; auto as the data set asks, else not")
    length: int | None = setting(
        None, "tokens of an example: longer texts are cut there; of a corpus, the tokens of a step", low=1
    )
    window: int = setting(5, "word vectors: words on either side that are context, at most", low=1, high=100)
    subsample: float = setting(
        1e-3, "word vectors: fraction of the text above which a word is seen less often; 0 sees all", low=0.0, high=1.0
    )
    stateful: bool | None = setting(
        None,
        "language modelling: truncated back-propagation through time, state carried: a step begins where the one "
        "before it ended; auto where the model has a state",
    )
    documents: bool = setting(
        False,
        "language modelling: no step reaches from one document of the corpus into another: files of a folder, or, of a "
        "single file, the text between blank lines",
    )
    mask_prob: float = setting(
        0.15, "masking probability: fraction of the tokens that a masked language model predicts", low=0.01, high=0.9
    )
    whole_words: bool = setting(False, "whole-word masking: mask whole words, not subwords")

    SERIES = Topic("forecasts: columns, lookback, horizon, calendar")
    forecast: tuple[str, ...] = setting((), "the columns of a series to forecast")
    time: str | None = setting(None, "the column of a series that holds the time; auto finds it")
    id: str | None = setting(
        None,
        "the column that names the series of each row, where a file holds several, one below another; each is split in "
        "time and standardised separately",
    )
    lookback: int | None = setting(
        None, "context length of a forecast: steps of a series that it is made from; auto takes 4 horizons", low=1
    )
    horizon: int | None = setting(
        None, "forecast horizon: steps of a series to forecast; auto is 24, or as the data set asks", low=1
    )
    season_length: int | None = setting(
        None, "seasonality: steps after which a series repeats itself; auto tells it from the time between steps", low=1
    )
    known_future: tuple[str, ...] = setting((), "covariates known in advance: columns of a series such as holidays")
    calendar: tuple[str, ...] = setting(
        (),
        "calendar covariates, known in advance, from the column of times: hour, weekday, month, comma-separated; each "
        "is a sine and a cosine",
    )
    gaps: str = setting(
        "error",
        "missing steps and values of a series: error names them, fill draws a straight line between neighbours; skip "
        "takes the rows as they follow one another, as on trading days, and names missing values",
        choices=("error", "fill", "skip"),
    )

    AUDIO = Topic("sample rate and spectrograms")
    rate: int | None = setting(
        None, "sample rate that audio is brought to, in hertz; auto takes its own", low=1000, high=192_000
    )
    n_mels: int = setting(64, "mel bands of a spectrogram", low=1, high=512)
    seconds: float | None = setting(
        None, "seconds that audio is cut to, or with transcripts may last at most; auto keeps it whole", low=0.01
    )

    VIDEO = Topic("frames")
    frames: int = setting(16, "frames of a video that the model is shown, evenly chosen", low=1, high=4096)

    GRAPHS = Topic("neighbour sampling, links, molecules")
    num_neighbors: tuple[int, ...] = setting(
        (),
        "neighbour sampling fan-out: neighbours drawn for each node, layer by layer; none takes the whole graph",
        low=1,
    )
    inductive: bool = setting(
        False, "inductive learning: hide the nodes of the other splits, and their edges, while a graph is learned"
    )
    edge_attr: bool | None = setting(
        None, "attributes of edges: whether the model is given them, such as a weight or a bond's type; auto as it asks"
    )
    links: bool = setting(
        False,
        "link prediction: learn which nodes of a graph are linked; 5 % of the links validate and 10 % are the test, "
        "unless val and test say otherwise",
    )
    smiles: str | None = setting(
        None, "the column that holds molecules as SMILES, where a table is to be read as graphs"
    )

    FEW_SHOT = Topic("new classes from a few examples: MAML, prototypes")
    ways: int = setting(5, "few-shot learning: classes of an episode, each of them new", low=2)
    shots: int = setting(1, "few-shot learning: labelled examples of each class of an episode, its support", low=1)
    queries: int = setting(5, "few-shot learning: other examples of each class, by which an episode is judged", low=1)

    CONTINUAL = Topic("a sequence of tasks: EWC, rehearsal")
    tasks: str | None = setting(
        None,
        "continual learning: a sequence of tasks, each learned for epochs passes; permuted:10 is ten tasks, each with "
        "the pixels (or columns) in another order, drawn by split_seed; classes:2 has two classes a task",
    )

    PROBLEMS = Topic("solving problems: forms, expert iteration, GRPO")
    form: tuple[str, ...] = setting(
        (),
        "problems: how solutions are written, comma-separated, the first being the form by which a model is judged; of "
        "addition plain, reversed or scratchpad, of numbers that make a target steps, tree, answer",
    )


@dataclass(frozen=True)
class ShardSettings:
    """Settings for writing shards."""

    workers: int | None = setting(
        None, "processes that make shards side by side; 0 makes them in this one; auto has one for each processor",
        low=0, high=256,
    )  # fmt: skip
    shard_size: int = setting(64, "MiB of the data, as it was given, that go into a shard", low=1, high=65_536)
    held_out: int = setting(
        4, "MiB that val and test of a corpus have at most each, unless val and test are given; 0 sets no bound",
        low=0, high=65_536,
    )  # fmt: skip
    sample: int = setting(
        64,
        "MiB of the training text that a tokenizer is fitted on, evenly spread where there is more",
        low=1,
        high=65_536,
    )
