"""The codes of errors, each with its meaning, its causes and its fix: `cutaway help CUT-203` and docs/errors.md."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from .errors import shorten

CODE = re.compile(r"CUT-\d{3}", re.IGNORECASE)


@dataclass(frozen=True)
class ErrorCode:
    """One kind of problem."""

    title: str
    meaning: str
    causes: tuple[str, ...]
    fix: str
    example: str  # lines of a shell, or of Python after >>>, of which the last gives the error


WINE = "cutaway examples wine.csv\n"
TRAIN = "cutaway train mlp wine.csv target=cultivar epochs=1"
RUN = f"{WINE}{TRAIN} --out runs/wine\n"

CODES = {
    "CUT-101": ErrorCode(
        "Invalid value",
        "A setting, an option or an argument has a value that is not allowed. The message names the allowed values.",
        (
            "A number is out of range, such as a negative learning rate.",
            "A word is not one of the choices.",
            "Two sizes do not fit, such as a dim that is not a multiple of heads.",
        ),
        "Choose a value that the message allows. `cutaway train --help KEY` describes a setting, and "
        "`cutaway show MODEL` the settings of a model.",
        f"{WINE}cutaway train mlp wine.csv target=cultivar lr=-1",
    ),
    "CUT-102": ErrorCode(
        "Unknown name",
        "There is no model, data set, setting, view, layer or command of this name. The message lists similar names.",
        ("The name is misspelled.", "The name was changed in a later version.", "The name belongs to another tool."),
        "Use one of the names in the message. `cutaway list` lists the models, `cutaway data` the data sets and "
        "`cutaway train --help all` the settings.",
        f"{WINE}cutaway train mlp wine.csv target=cultivar epoch=2",
    ),
    "CUT-103": ErrorCode(
        "Missing argument or setting",
        "The command or function needs an argument or a setting that was not given.",
        ("MODEL or DATA is missing.", "A table needs the column to predict: target=COLUMN."),
        "Add the argument or setting that the message names.",
        f"{WINE}cutaway train mlp wine.csv",
    ),
    "CUT-104": ErrorCode(
        "Setting that does not apply",
        "A setting is valid, but not for this model or data, or not together with another setting.",
        (
            "A setting is for another kind of data, such as flip for a table.",
            "Two settings exclude each other.",
            "The model has no layers that the setting is for.",
        ),
        "Leave the setting out, or choose the model, data or setting that the message names.",
        f"{WINE}cutaway train mlp wine.csv target=cultivar flip=true",
    ),
    "CUT-105": ErrorCode(
        "Missing package",
        "A feature needs an optional package that is not installed, or that cannot be imported.",
        ("Cutaway was installed without the extra.", "The command runs in another environment than the installation."),
        "Run the `pip install` command in the message, in the environment in which Cutaway is installed.",
        '>>> import sys\n>>> sys.modules["umap"] = None  # as if it were not installed\n'
        '>>> cutaway.core.extras.require("umap", "embedding=umap")',
    ),
    "CUT-106": ErrorCode(
        "Cannot resume like this",
        "A training, comparison or search continues with its own model, data and settings, and only some can change.",
        (
            "A setting was given that cannot change on resume.",
            "The data or the model was passed in Python, and must be passed again.",
        ),
        "Resume with `--resume FOLDER` alone, or start a new run in another folder.",
        f"{RUN}cutaway train --resume runs/wine lr=0.1",
    ),
    "CUT-201": ErrorCode(
        "File or folder not found",
        "There is no file, folder or run at this path.",
        ("The path is misspelled.", "The path is relative to another folder than the current one."),
        "Check the path. Relative paths start in the folder in which the command runs.",
        "cutaway train mlp data/houses.csv target=price",
    ),
    "CUT-202": ErrorCode(
        "Data that cannot be read",
        "A file of data, or some of its rows, cells, images or recordings, cannot be read.",
        (
            "A row has too many or too few cells.",
            "A cell is not a number where a number belongs.",
            "A file is empty (0 bytes), truncated, damaged, or in another encoding.",
            "The target of a row is missing.",
        ),
        "Correct the rows or files that the message names. `cutaway check MODEL DATA` lists them all, and missing=drop "
        "leaves them out.",
        "printf 'area,price\\n50,100\\n60,120,7\\n' > houses.csv\ncutaway train mlp houses.csv target=price",
    ),
    "CUT-203": ErrorCode(
        "Wrong column",
        "A column of a table is unknown, ambiguous, or cannot be used as the setting says.",
        (
            "The name in target=, group=, time= or ignore= is not in the header.",
            "Two columns have the same name.",
            "The file has no header, so that its first row was read as names.",
        ),
        "Compare the name with the columns in the message. A file without a header needs header=false.",
        f"{WINE}cutaway train mlp wine.csv target=cultivr",
    ),
    "CUT-204": ErrorCode(
        "Not enough data",
        "There are too few examples, classes, tokens or time steps for this training, split or metric.",
        (
            "The table has a header, and no or almost no rows.",
            "All examples have the same class.",
            "A text or series is shorter than one window.",
            "val= or test= leaves a split empty.",
        ),
        "Add data, or change the setting that the message names, such as val=, test= or length=.",
        "printf 'area,price\\n50,100\\n' > houses.csv\ncutaway train mlp houses.csv target=price",
    ),
    "CUT-205": ErrorCode(
        "Unsupported kind of data",
        "The file format or the kind of data is not supported by this command.",
        (
            "The file is a spreadsheet, a PDF or an archive.",
            "The command is for another kind of data, such as generation for a classifier.",
        ),
        "Convert the file as the message says, or use the command or model that it names.",
        "printf '%%PDF-1.4' > report.pdf\ncutaway train mlp report.pdf target=price",
    ),
    "CUT-206": ErrorCode(
        "Folder layout",
        "The files of a folder, or two files that belong together, do not fit together.",
        (
            "Images are not in one folder per class.",
            "There is a test/ folder, but no train/.",
            "An image has no mask, or two files of sentence pairs have different numbers of lines.",
        ),
        "Arrange the files as the message says. The page of each kind of data shows the layout.",
        "printf 'ein Haus\\n' > de.txt\nprintf 'a house\\na tree\\n' > en.txt\n"
        "cutaway train transformer-tiny de.txt,en.txt pairs=true",
    ),
    "CUT-207": ErrorCode(
        "Invalid data from Python",
        "An array, tensor, data frame, list or dataset that was passed in Python has the wrong form.",
        (
            "X and y have different lengths.",
            "y has several columns.",
            "A generator was passed, which can be read only once.",
        ),
        "Pass (X, y) with one row and one target per example, a data frame, or a dataset with a length.",
        '>>> import numpy as np\n>>> cutaway.train("mlp", (np.zeros((3, 2)), np.zeros(4)))',
    ),
    "CUT-208": ErrorCode(
        "Data that does not match the model",
        "The data differs from the data on which the model was trained.",
        (
            "A column of the training data is missing.",
            "A class did not occur in training.",
            "The images have another number of channels, or the text is longer than in training.",
        ),
        "Give data in the form of the training data. The report of the run lists its columns and classes.",
        f"{RUN}printf 'alcohol\\n13.2\\n' > new.csv\ncutaway predict runs/wine new.csv",
    ),
    "CUT-301": ErrorCode(
        "Damaged file",
        "A file of a run, a model or an export is damaged, incomplete, or not of the expected format.",
        (
            "The file was truncated while it was copied or downloaded.",
            "The file was changed by hand.",
            "The file was written by a newer version.",
        ),
        "Restore the file, or the whole folder, from a copy. Otherwise download it again or train again.",
        f"{RUN}printf '{{' > runs/wine/run.json\ncutaway evaluate runs/wine",
    ),
    "CUT-302": ErrorCode(
        "Cannot write or open",
        "The operating system does not allow to write or open this path.",
        (
            "The file or folder lacks the permission.",
            "The disk is full.",
            "A file is in the place of a folder, or a folder or a device in the place of a file.",
        ),
        "Check the path and its permissions, free some space, or choose another folder with --out.",
        f"{WINE}{TRAIN} --out wine.csv/run",
    ),
    "CUT-303": ErrorCode(
        "Already exists",
        "The result would replace a file or folder that exists, and nothing is overwritten without --overwrite.",
        ("The command was run before with the same --out.", "The folder holds other files."),
        "Choose another --out, add --overwrite to replace a run, or continue it with --resume.",
        f"{RUN}{TRAIN} --out runs/wine",
    ),
    "CUT-304": ErrorCode(
        "Not a run",
        "The folder is not a run, or the run is not complete.",
        (
            "The path names the data or a parent folder.",
            "Training was stopped before the end of the first epoch.",
        ),
        "Give the folder that `cutaway train` printed, for example runs/mlp-wine-1.",
        "mkdir photos\ncutaway evaluate photos",
    ),
    "CUT-305": ErrorCode(
        "Run in use",
        "Another process works on this run. Two at once would overwrite each other's files.",
        ("The same training is still running, perhaps in another terminal or job.",),
        "Wait until the other process ends, or end it. The message names it.",
        f"{RUN}>>> from cutaway.training.run_folder import lock_run\n"
        '>>> with lock_run(Path("runs/wine")):  # as another training does\n'
        '>>>     cutaway.train(resume="runs/wine", epochs=2)',
    ),
    "CUT-306": ErrorCode(
        "Pickle not opened",
        "The file is a pickle. Reading one can run any program that is hidden in it, so it is not opened.",
        ("The weights were saved with torch.save, as .pt, .pth or .bin.",),
        "Save the weights as safetensors. If you trust the file, open it with torch and save it again.",
        'mkdir gpt2\nprintf \'{"model_type": "gpt2"}\' > gpt2/config.json\n'
        '>>> torch.save(torch.nn.Linear(2, 2).state_dict(), "gpt2/pytorch_model.bin")\n'
        "cutaway convert gpt2 out --to cutaway",
    ),
    "CUT-401": ErrorCode(
        "Model does not fit the task",
        "The model cannot be built as configured, or is not made for this kind of data or target.",
        (
            "The model takes another kind of data, such as images.",
            "The model predicts classes, and the target is a number.",
        ),
        "Use one of the models that the message names. `cutaway list table` lists the models for tables.",
        f"{WINE}cutaway train resnet18 wine.csv target=cultivar",
    ),
    "CUT-402": ErrorCode(
        "Wrong input shape",
        "A tensor has a shape, type or mask that the model does not accept.",
        (
            "The image size differs from that of the model.",
            "A sequence is longer than the context.",
            "A dim is missing.",
        ),
        "Bring the tensor to the shape in the message.",
        '>>> model = cutaway.create_model("lenet5")\n>>> model(torch.zeros(1, 1, 28, 28))',
    ),
    "CUT-403": ErrorCode(
        "Unsupported checkpoint",
        "The settings of a checkpoint describe a network that has no equivalent here.",
        ("The architecture is not implemented.", "A field of config.json has a value that is not supported."),
        "Use a checkpoint of one of the architectures in the message.",
        'mkdir llama\nprintf \'{"model_type": "llama"}\' > llama/config.json\n'
        ">>> torch_save = __import__('safetensors.torch').torch.save_file\n"
        '>>> torch_save({"weight": torch.zeros(2)}, "llama/model.safetensors")\n'
        "cutaway convert llama out --to cutaway",
    ),
    "CUT-404": ErrorCode(
        "Weights do not fit",
        "The weights have other names or shapes than the model.",
        ("The weights are those of another model or of other settings.", "The number of inputs or channels differs."),
        "Use the settings with which the weights were trained, or the weights of this model.",
        f"{RUN}{TRAIN} weights=runs/wine model.hidden_dims=7",
    ),
    "CUT-405": ErrorCode(
        "No independent implementation",
        "`cutaway verify` has nothing to compare this model with.",
        ("The library with the other implementation is not installed.", "No library has this variant."),
        "Install the library in the message, or verify a preset without changed settings.",
        '>>> from cutaway.verify import oracle_for\n>>> oracle_for("perceptron-of-mine", None)',
    ),
    "CUT-501": ErrorCode(
        "Training stopped",
        "Training cannot continue, for example because the loss or a gradient is not finite.",
        ("The learning rate is too large.", "The data has extreme values.", "A callback raised an error."),
        "Use a smaller lr, or clip the gradients with clip=1.",
        f"{WINE}cutaway train mlp wine.csv target=cultivar optimizer=sgd lr=1e30",
    ),
    "CUT-502": ErrorCode(
        "Out of memory",
        "The model, its training or a request needs more memory than there is.",
        ("The model or the batch is too large.", "Other programs use the memory.", "A limit is set, as by ulimit -v."),
        "Use a smaller batch_size, image_size, length or model, or free memory. `cutaway plan` estimates the need.",
        f"{WINE}cutaway train mlp wine.csv target=cultivar model.hidden_dims=1000000,1000000",
    ),
    "CUT-503": ErrorCode(
        "Process lost",
        "A process of a training or of a server did not start, or ended.",
        ("It ran out of memory and was killed.", "Its machine is not reachable.", "It was stopped by hand."),
        "Read the error above it, if there is one. Check the memory and the network, then resume the run.",
        ">>> from datetime import timedelta\n>>> from cutaway.distributed.group import process_group\n"
        '>>> os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "8000", "TORCHELASTIC_RUN_ID": "a"}\n'
        '>>> os.environ |= {"RANK": "0", "WORLD_SIZE": "2"}\n'
        ">>> process_group(arrival=timedelta(seconds=1)).__enter__()",
    ),
    "CUT-504": ErrorCode(
        "Device not available",
        "This machine does not have the device, the precision or the compiler that was asked for.",
        ("There is no GPU, or PyTorch was installed without CUDA.", "compile=true finds no C++ compiler."),
        "Use device=auto, or install the PyTorch build or the compiler that the message names.",
        f"{WINE}{TRAIN} device=cuda:9",
    ),
    "CUT-601": ErrorCode(
        "Download failed",
        "A file could not be downloaded, or an address was given where a file belongs.",
        ("There is no network, or a proxy blocks it.", "The server does not have the file."),
        "Check the network, or download the file by hand as the message says.",
        "cutaway train mlp https://example.org/wine.csv target=cultivar",
    ),
    "CUT-602": ErrorCode(
        "Server address",
        "A server cannot listen at this host and port.",
        ("The port is in use.", "The host is not an address of this machine.", "A public address needs a token."),
        "Choose another --port or --host, or set the token that the message names.",
        f"{RUN}cutaway serve runs/wine --host 0.0.0.0",
    ),
    "CUT-603": ErrorCode(
        "Invalid request",
        "A request to a server is invalid or too large. The JSON of the response has the message and the code.",
        ("A key is unknown or missing.", "A value has the wrong type.", "The request has too many rows or bytes."),
        "Change the request as the message says. /docs of the server describes the requests.",
        f"{RUN}cutaway serve runs/wine --port 8000 &\ncurl -s --json '{{\"rows\": []}}' http://127.0.0.1:8000/predict",
    ),
}


def is_code(word: str) -> bool:
    """Return whether a word has the form of an error's code."""
    return CODE.fullmatch(word) is not None


def explanation(word: str, width: int = 80) -> str:
    """Return the text of `cutaway help CUT-203`: meaning, causes, fix and example of a code.

    Args:
        word: The code, in any case.
        width: Columns of the terminal.

    Returns:
        The text, wrapped to the width.

    Raises:
        UnknownName: If there is no such code.
    """
    from .errors import UnknownName

    key = word.upper()
    if key not in CODES:
        raise UnknownName("error code", shorten(key), CODES, "docs/errors.md lists them all.")
    found = CODES[key]

    def wrap(text: str, first: str = "", rest: str = "") -> str:
        return textwrap.fill(
            text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )

    parts = [f"{key}: {found.title}", "", wrap(found.meaning), "", "Causes:"]
    parts += [wrap(cause, "  - ", "    ") for cause in found.causes]
    parts += ["", wrap(f"Fix: {found.fix}"), "", "Example:", textwrap.indent(found.example, "  ")]
    return "\n".join(parts)
