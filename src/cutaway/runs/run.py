"""Runs, which are folders that training writes, opened to evaluate, to predict and to inspect the model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from pathlib import Path
from typing import Any, Unpack

import polars as pl
import torch
from PIL import Image
from torch import Tensor, nn

from ..checkpoints.word_vectors import Vectors
from ..core import spec as specs
from ..core.errors import (
    CutawayError,
    CutawayWarning,
    DataError,
    IncompatibleSettingError,
    NotEnoughDataError,
    SettingError,
    UnsupportedDataError,
    check_value,
    join,
)
from ..core.spec import Context, Episodes, Links, Masked, Noise, Transcript
from ..data.dataset_base import Preprocessing, Split, inverse_transform
from ..data.graphs.splits import LinkSplit
from ..data.images.segmentation import MaskPreprocessing
from ..data.images.text_to_image import CaptionedTokenPreprocessing
from ..data.images.tokens import TokenPreprocessing
from ..data.in_memory.dataset import is_collection, prepare_inputs, prepare_labelled
from ..data.open_data import NAMED, open_data
from ..data.settings import DataSettings
from ..data.tables.transforms import TablePreprocessing
from ..data.text.corpus_transforms import GAP, MaskedPreprocessing
from ..data.text.puzzles import PuzzlePreprocessing
from ..data.unsupported_formats import reject_unsupported_file
from ..inference import image_generation
from ..inference.language_model_thinker import think
from ..inference.sampling import Settings as Sampled
from ..inference.thought_search import GREEDY, Method, SearchResult
from ..statistics.intervals import Metric
from ..tasks.contrastive import Contrastive
from ..tasks.sequences import SequenceToSequence
from ..training.evaluation import SplitOutputs, evaluate_split, evaluate_tasks, evaluation_batch_size
from ..training.objectives.supervised import AttackedSplit
from ..training.output_check import reject_too_long_transcripts
from ..training.run_folder import Cell, read_evaluation, read_metrics
from ..training.trained_run import TrainedRun
from .predict import (
    Prediction,
    classify_by_support,
    evaluate_episodes,
    fill_masks,
    generate_texts,
    predict_images,
    predict_links,
    predict_masks,
    prepare_other_test_split,
    reject_beams,
    reject_method,
)
from .summary import run_html, run_text

MISSING_CHOICES = ("error", "drop", "fill")  # values of the setting missing


class Run(TrainedRun):
    """A trained run, opened from its folder. Every property is read on first use.

    A notebook shows the score with its interval, the learning curves and the worst mistakes. `print(run)` prints the
    score.

    Args:
        folder: Folder of the run.
        module: For a run of your own module: the module that takes the weights, or its class. The module is not
            changed; a copy of it becomes the model of the run. By default, the model is built from its preset.

    Raises:
        FileError: If the folder is not a run.
    """

    @property
    def history(self) -> pl.DataFrame:
        """Return the learning curves as a data frame with one row for each finished epoch.

        The columns are those of metrics.csv: epoch, step, lr, train_loss, the validation metrics such as val_accuracy,
        and seconds. Values at the end of each epoch are null if there is no validation split.

        Raises:
            FileError: If metrics.csv is damaged.
        """
        rows = self._epochs()
        whole = {"epoch": pl.Int64, "step": pl.Int64}
        names = list(rows[0]) if rows else [*whole, "lr", "train_loss", "seconds"]
        values = {
            name: [float(cell) if isinstance(cell := row.get(name), str) else cell for row in rows] for name in names
        }
        return pl.DataFrame(
            [pl.Series(name, values[name], pl.Float64).cast(whole.get(name, pl.Float64)) for name in names]
        )

    def _epochs(self) -> list[dict[str, Cell]]:
        """Return the last row of metrics.csv for each finished epoch."""
        last = {row["epoch"]: row for row in read_metrics(self.folder / "metrics.csv")}
        done = self.about.get("epochs_done")
        return [row for epoch, row in last.items() if done is None or (isinstance(epoch, float) and epoch <= done)]

    def __str__(self) -> str:
        try:
            return run_text(str(self.folder), self.about, read_evaluation(self.folder))
        except CutawayError:  # such as a folder that was deleted
            return repr(self)

    def _repr_html_(self) -> str:
        """Return score, learning curves and worst mistakes for a notebook."""
        return run_html(str(self.folder), self.about, read_evaluation(self.folder), self._epochs())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the summary in IPython's terminal."""
        printer.text(repr(self) if cycle else str(self))

    def evaluate(
        self,
        source: Any = None,
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        attack: str | None = None,
        eps: float = 0.03,
        attack_steps: int = 20,
        method: Method | None = None,
        missing: str | None = None,
        **episodes: int,
    ) -> dict[str, Metric]:
        """Compute metrics with 95 % confidence intervals on the test split of the run or on other labelled data.

        Other data is prepared with the preprocessing of the run. Skipped examples, and values that are not in the
        training split, are reported as warnings.

        Args:
            source: Labelled data of the same kind: a path, objects as for `train`, such as (X, y), or a named data set,
                whose test split is used. By default, the run's own test split, or its validation split if there is no
                test split.
            num_beams: Number of beams, for runs that generate sequences. By default, that of the run's settings.
            length_penalty: Length penalty of beam search. By default, that of the run's settings.
            attack: Adversarial attack on the images: "fgsm" or "pgd". By default, none.
            eps: Largest change of a pixel by the attack, as a fraction of its range 0 to 1.
            attack_steps: Number of steps of PGD.
            method: Search for solutions of problems (`inference.thought_search`). By default, one greedy chain.
            missing: For other tables: "error" names rows that cannot be used, "drop" leaves them out, "fill" counts
                cells that cannot be read as missing. By default, "fill" if the run was trained with it, else "error".
            **episodes: For few-shot learning: other ways, shots, queries or inner_steps than in training.

        Returns:
            The metrics by name. Each has a `value` and the ends of its interval, `low` and `high`.

        Raises:
            DataError: If there is no test split, or the data does not match the run.
            SettingError: If a setting does not apply to the run.
        """
        reject_beams(self.spec, num_beams, length_penalty)
        reject_method(self.preprocessing, method)
        tasks, preprocessing = None, self._with_missing(missing)
        if source is None:
            if missing is not None:
                raise IncompatibleSettingError(
                    f"Invalid missing={missing}: only for other data. The test split of a run is read as in training."
                )
            data = self.data()
            split, tasks = data.splits.get("test") or data.splits.get("val"), data.tasks
            if split is None:
                raise NotEnoughDataError(
                    "This run has no test split.", fix="Give labelled data: cutaway evaluate RUN DATA."
                )
        elif not isinstance(source, str | os.PathLike):
            split = prepare_labelled(source, preprocessing)
            _emit_notes(split, 3)
        elif str(source) in NAMED:
            split = prepare_other_test_split(
                open_data(str(source), DataSettings()), self.preprocessing, self.task, self.about
            )
        else:
            reject_unsupported_file(source)
            split = preprocessing.labelled(str(source))
            _emit_notes(split, 3)
            if isinstance(self.spec.target, Transcript):
                reject_too_long_transcripts(self.model, split)
        model = self.place.model(self.model, learns=False)
        if episodes:
            size = self.about["settings"].get("eval_batch_size")
            return evaluate_episodes(model, self.place, self.spec, split, episodes, size)
        if attack is not None:
            given = (model, self.task, self.preprocessing, self.place, attack, eps, attack_steps)
            split, tasks = AttackedSplit(split, *given), None
        results = self.results(split, True, num_beams, length_penalty, method)
        more, _ = evaluate_tasks(tasks, model, self.task, split, self.place, self.folder, results)
        return {**self.task.metrics(*results), **more}

    def predict(
        self,
        sources: Sequence[Any],
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        support: str | Path | None = None,
        missing: str | None = None,
    ) -> list[Prediction]:
        """Predict new files or rows, prepared like the training split.

        Values that the training split did not have, such as a new category, are reported as warnings.

        Args:
            sources: Paths or examples, in a list, or an object as `train` takes it, such as X or a data frame.
            num_beams: Number of beams, as in `evaluate`.
            length_penalty: Length penalty of beam search, as in `evaluate`.
            support: For few-shot learning: a folder with one subfolder of images for each class.
            missing: For tables: "error" names cells that cannot be read, "fill" counts them as missing. By default, as
                in `evaluate`. There is no "drop", because there is one prediction for each row.

        Returns:
            One row for each example, a dictionary with `input` and the prediction, with names and units. For a run
            trained on pairs of sequences, a file has one row for each line, in order; the prediction for an empty line
            is empty.

        Raises:
            DataError: If an input cannot be read. The message names the file or row.
            SettingError: If a setting does not apply to the run.
        """
        reject_beams(self.spec, num_beams, length_penalty)
        if missing == "drop":
            raise IncompatibleSettingError(
                "Invalid missing=drop: there is one prediction for each row. missing=fill counts cells that cannot be "
                "read as missing."
            )
        preprocessing = self._with_missing(missing)
        sources = [sources] if isinstance(sources, str | os.PathLike | Mapping) else sources
        if isinstance(sources, Iterator | Set | ValuesView):  # they can be iterated only once
            sources = list(sources)
        if is_collection(sources, preprocessing):
            sources = prepare_inputs(sources, preprocessing)
        if isinstance(self.spec.target, Episodes):
            model = self.place.model(self.model, learns=False)
            return classify_by_support(model, self.place, self.preprocessing, sources, support)
        if support is not None:
            raise IncompatibleSettingError(
                f"Invalid support: only for few-shot learning, and {self.folder} has fixed classes."
            )
        if isinstance(self.spec.target, Context):
            return self.vectors.rows(sources)
        if isinstance(self.spec.target, Masked) and any(GAP in str(source) for source in sources):
            assert isinstance(self.preprocessing, MaskedPreprocessing)
            return fill_masks(self.place.model(self.model, learns=False), self.place, self.preprocessing, sources)
        if isinstance(self.spec.target, Noise):
            raise UnsupportedDataError(
                f"{self.about['model']} predicts noise and has no predictions for an image: `cutaway generate RUN` "
                "generates images, and a run of vae gives the likelihood of an image."
            )
        named = self._named_graph(sources)
        split = named if named is not None else self._examples(sources, preprocessing)
        if isinstance(split, LinkSplit):
            return predict_links(self.place.model(self.model, learns=False), self.task, split, self.place)
        results = None
        if len(split):
            results = self.results(split, decodes=True, num_beams=num_beams, length_penalty=length_penalty)
        if results and (rows_of := getattr(self.task, "prediction_rows", None)) is not None:
            found: list[Prediction] = rows_of(results.outputs, split, self.preprocessing)
            return found
        rows = self.task.predictions(inverse_transform(split, results.outputs)) if results else []
        for i in getattr(split, "empty", ()):
            rows[i] = dict.fromkeys(rows[i], "")
        return [{"input": split.name(i), **row} for i, row in enumerate(rows)]

    def generate(
        self,
        sources: Sequence[Any],
        samples: int = 1,
        *,
        seed: int = 0,
        longest: int | None = None,
        **settings: Unpack[Sampled],
    ) -> list[list[str]]:
        """Sample output sequences for each source, for runs trained on pairs of sequences or captions.

        Sample k uses the seed `seed` + k and does not depend on the other samples.

        Args:
            sources: Sources, as in `predict`.
            samples: Number of sequences for each source.
            seed: Seed of the first sample.
            longest: Largest number of tokens. By default, 1.5 times that of the longest sequence in training.
            **settings: Settings of `inference.sampling.Sampling`: temperature, top_k, top_p, min_p, repetition_penalty.

        Returns:
            `samples` texts for each source.

        Raises:
            SettingError: If a setting is invalid.
            DataError: If the run generates no sequences, or a source cannot be read.
        """
        if not isinstance(self.task, SequenceToSequence):
            raise UnsupportedDataError(
                f"{self.about['model']} predicts the {self.spec.target.column} of {self.spec.kind} data and does not "
                "translate sequences: use a sequence-to-sequence or captioning run."
            )
        split = self._examples([sources] if isinstance(sources, str | os.PathLike) else list(sources))
        model = self.place.model(self.model, learns=False)
        return generate_texts(model, split, self.place, self.task, samples, seed, longest, settings)

    def think(self, problems: Sequence[str], method: Method = GREEDY) -> list[SearchResult]:
        """Search for a solution of each problem, and return the search with all its thoughts.

        Args:
            problems: Problems of the kind that the run was trained on.
            method: Search method of `cutaway.inference.thought_search`. By default, one greedy chain.

        Returns:
            The search result of each problem.

        Raises:
            DataError: If a text is not a problem, or has no solution.
            SettingError: If the run does not support the method.
        """
        reject_method(self.preprocessing, method)
        assert isinstance(self.preprocessing, PuzzlePreprocessing)
        asked = self.preprocessing.examples(problems).problems
        return think(self.place.model(self.model, learns=False), self.preprocessing, asked, method)

    def sample(
        self,
        count: int = 64,
        of_class: str | None = None,
        *,
        prompt: str | None = None,
        steps: int | None = None,
        guidance: float | None = None,
        eta: float | None = None,
        seed: int = 0,
        **settings: Unpack[Sampled],
    ) -> list[Image.Image]:
        """Generate new images, for runs trained to generate images. Image k uses the seed `seed` + k.

        Args:
            count: Number of images.
            of_class: Class of the images. By default, all classes alternate, if there are classes.
            prompt: Caption of the images, for models trained on captions. By default, none.
            steps: Number of timesteps that are sampled, for diffusion models (50).
            guidance: Scale of classifier-free guidance, for diffusion models (2).
            eta: 0 for DDIM, 1 for ancestral sampling, for diffusion models (1).
            seed: Seed of the first image.
            **settings: Settings of `inference.sampling.Sampling`, for models of image tokens: temperature, top_k,
                top_p, min_p.

        Returns:
            The images.

        Raises:
            DataError: If the run generates no images.
            SettingError: If a setting is invalid.
        """
        asked: Any = {"prompt": prompt, "steps": steps, "guidance": guidance, "eta": eta, "seed": seed}
        levels, _, _ = self.sample_tensors(count, of_class, **asked, **settings)
        return image_generation.as_images(levels)

    def sample_tensors(
        self,
        count: int,
        of_class: str | None = None,
        *,
        prompt: str | None = None,
        steps: int | None = None,
        guidance: float | None = None,
        eta: float | None = None,
        seed: int = 0,
        **settings: Unpack[Sampled],
    ) -> tuple[Tensor, Tensor | None, image_generation.DiffusionSettings]:
        """Generate images as `sample` does, and return them as tensors.

        Args:
            count: Number of images.
            of_class: As in `sample`.
            prompt: As in `sample`.
            steps: As in `sample`.
            guidance: As in `sample`.
            eta: As in `sample`.
            seed: As in `sample`.
            **settings: As in `sample`.

        Returns:
            The images, uint8, shape (count, C, H, W); the class of each, or None; and the resolved sampling settings.

        Raises:
            DataError: If the run generates no images.
            SettingError: If a setting is invalid.
        """
        spec = self.spec
        if not isinstance(spec, specs.ImageSpec) or not isinstance(spec.target, specs.GeneratedImage):
            raise UnsupportedDataError(
                f"{self.folder} cannot generate images: {self.about['model']} predicts the {spec.target.column} of "
                f"{spec.kind} data. Use a run of ddpm-unet, vae or image-gpt."
            )
        if count < 1:
            raise SettingError(f"Invalid count={count}: must be at least 1.")
        if not 0 <= seed < 2**63 - count:
            raise SettingError(f"Invalid seed={seed}: must be at least 0 and below 2**63.")
        asked = image_generation.resolve_settings(spec, self.model, steps, guidance, eta)
        classes = image_generation.classes_for(spec, count, of_class)
        model = self.place.model(self.model, learns=False)
        if isinstance(self.preprocessing, TokenPreprocessing):
            prompts = self._prompts(self.preprocessing, classes, count, prompt)
            seeds = range(seed, seed + count)
            levels = image_generation.sample_tokens(
                model, self.preprocessing, prompts, seeds, self.place.device, **settings
            )
            return levels, classes, asked
        if prompt is not None:
            raise IncompatibleSettingError(
                f"Invalid prompt={prompt!r}: only for models of image tokens that were trained on captions "
                "(image-gpt). Leave it out."
            )
        for name, value in settings.items():
            raise IncompatibleSettingError(
                f"Invalid {name}={value}: only for models of image tokens (image-gpt). Leave it out."
            )
        return image_generation.draw(model, spec, asked, classes, count, seed, self.place.device), classes, asked

    def complete(
        self,
        images: Sequence[Any] | str | os.PathLike[str],
        samples: int = 1,
        of_class: str | None = None,
        *,
        prompt: str | None = None,
        limit: int | None = None,
        seed: int = 0,
        **settings: Unpack[Sampled],
    ) -> tuple[Tensor, Tensor]:
        """Sample the lower half of images given their upper half, for models of image tokens.

        Completion j of image i uses the seed `seed` + i · samples + j.

        Args:
            images: Paths, images or arrays, as in `predict`; or a split of the data of the run: train, val or test.
            samples: Number of completions of each image.
            of_class: Class of the images. By default, the class in a split of the data, and none for other images.
            prompt: Caption of the images. By default, that in a split of the data, and none for other images.
            limit: Largest number of images, the first ones. By default, all.
            seed: Seed of the first completion.
            **settings: As in `sample`.

        Returns:
            The images in the colours of the palette, uint8, shape (n, C, H, W), and their completions, shape
            (n, samples, C, H, W).

        Raises:
            DataError: If the run is not a model of image tokens, or an image cannot be read.
            SettingError: If a setting is invalid.
        """
        known = self.preprocessing
        if not isinstance(known, TokenPreprocessing):
            raise UnsupportedDataError(
                f"{self.folder} cannot complete images: {self.about['model']} does not model image tokens. Use a run "
                "of image-gpt."
            )
        for name, value in (("samples", samples), ("limit", 1 if limit is None else limit)):
            if value < 1:
                raise SettingError(f"Invalid {name}={value}: must be at least 1.")
        if isinstance(images, str | os.PathLike):
            named = str(images) in ("train", "val", "test") and not Path(images).exists()
            split = self._split(str(images)) if named else known.examples([images])
        else:
            split = known.examples(list(images))
        rows = torch.arange(len(split) if limit is None else min(limit, len(split)))
        (inputs,), tokens = next(iter(split.batches([rows])))  # (n, T) each
        before = known.target.prefix
        if of_class is not None or prompt is not None:
            classes = image_generation.classes_for(known.spec, len(rows), of_class)
            inputs = torch.cat([self._prompts(known, classes, len(rows), prompt), inputs[:, before:]], dim=1)
        given = inputs[:, : before + image_generation.given_pixels(known.spec)].repeat_interleave(samples, dim=0)
        seeds = range(seed, seed + len(given))
        model = self.place.model(self.model, learns=False)
        drawn = image_generation.sample_tokens(model, known, given, seeds, self.place.device, **settings)
        return known.levels(tokens), drawn.view(len(rows), samples, *known.spec.shape)

    def _prompts(self, known: TokenPreprocessing, classes: Tensor | None, count: int, text: str | None) -> Tensor:
        """Return the inputs before the first pixel of each image. Emit a warning for unknown words of a caption."""
        found = known.prompts(classes, count, text)
        if isinstance(known, CaptionedTokenPreprocessing) and text and (unknown := known.unknown(text)):
            warnings.warn(
                f"unknown to the model: {join(list(map(repr, unknown)), 'and')}; each is replaced by the unknown word.",
                CutawayWarning,
                stacklevel=3,
            )
        return found

    def _split(self, name: str) -> Split:
        """Return a split of the data of the run. Raises DataError if there is none of that name."""
        splits = self.data().splits
        if name not in splits:
            raise DataError(f"The data of {self.folder} has no {name} split: its splits are {', '.join(splits)}.")
        return splits[name]

    def masks(self, sources: Sequence[Any]) -> Iterator[tuple[str, Image.Image]]:
        """Yield the name of each image and its predicted mask, of the size of the image and with a palette.

        Pixels that the network did not see are `ignored`.

        Args:
            sources: Paths or images, as in `predict`.

        Yields:
            The name and the mask of each image.

        Raises:
            DataError: If the run does not predict masks.
        """
        if not isinstance(self.preprocessing, MaskPreprocessing):
            raise UnsupportedDataError(f"{self.folder} predicts the {self.spec.target.column}, not masks.")
        return predict_masks(self._answers(sources), self.preprocessing)

    def pictures(self, sources: Sequence[Any]) -> Iterator[tuple[str, Image.Image]]:
        """Return an iterator over the name of each image and the image with its predicted boxes or mask drawn on it.

        Args:
            sources: Paths or images, as in `predict`.

        Raises:
            DataError: If the run predicts neither boxes nor masks.
        """
        pictured = getattr(self.preprocessing, "pictured", None)
        if pictured is None:
            raise UnsupportedDataError(f"{self.folder} predicts the {self.spec.target.column}, not boxes or masks.")
        return ((name, pictured(image, said)) for name, image, said in self._answers(sources))

    def _answers(self, sources: Sequence[Any]) -> Iterator[tuple[str, Image.Image, Tensor]]:
        """Yield the name of each image, the original image, and the task's answer for it."""
        split, model = self.preprocessing.examples(sources), self.place.model(self.model, learns=False)
        return predict_images(model, self.task, split, self.place, bool(self.about["settings"].get("tta", False)))

    @property
    def vectors(self) -> Vectors:
        """Return the word vectors that the run learned.

        Raises:
            DataError: If the model has no word embedding.
        """
        embedding, tokenizer = getattr(self.model, "embedding", None), getattr(self.preprocessing, "tokenizer", None)
        if not isinstance(embedding, nn.Embedding) or tokenizer is None:
            raise UnsupportedDataError(
                f"{self.folder} is a run of {self.about['model']}, which has no vectors of words."
            )
        return Vectors.from_embedding(embedding, tokenizer.tokens)

    def _named_graph(self, sources: Sequence[Any]) -> LinkSplit | None:
        """Return the graph with all its links, if `sources` is the name of the run's graph data; else None."""
        if not isinstance(self.spec.target, Links) or [str(one) for one in sources] != [self.about["data"]["source"]]:
            return None
        split = self.data().splits["train"]
        assert isinstance(split, LinkSplit)
        return split.whole()

    def results(
        self,
        split: Split,
        decodes: bool = False,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        method: Method | None = None,
    ) -> SplitOutputs:
        """Run the model on a split, and return its outputs and the targets.

        Args:
            split: The examples, such as `run.data().splits["test"]`.
            decodes: Whether to decode output sequences too, for models that generate them.
            num_beams: Number of beams. By default, that of the run's settings.
            length_penalty: Length penalty of beam search. By default, that of the run's settings.
            method: Search method for problems. By default, one greedy chain.

        Returns:
            A named tuple that begins with the outputs, (n, …), and the targets, (n, …), in the order of the examples.

        Raises:
            DataError: If the run was trained without classes, so that its outputs cannot be evaluated.
        """
        settings, task = self.about["settings"], self.task
        model, size = (
            self.place.model(self.model, learns=False),
            evaluation_batch_size(settings.get("eval_batch_size"), self.spec),
        )
        if isinstance(task, Contrastive) and not task.remembers:
            if len(task.target.names) < 2:
                raise UnsupportedDataError(
                    f"{self.folder} is trained on images without classes, so it cannot be evaluated.",
                    fix=f"Fine-tune its weights on classes: cutaway train MODEL DATA weights={self.folder}",
                )
            train = self.data().splits["train"]
            task.remember(*evaluate_split(model, train, self.place, size, task))
        return evaluate_split(
            model,
            split,
            self.place,
            size,
            task,
            flip=settings.get("tta", False),
            decodes=decodes,
            num_beams=num_beams if num_beams is not None else settings.get("num_beams", 1),
            length_penalty=length_penalty if length_penalty is not None else settings.get("length_penalty", 0.6),
            method=method or GREEDY,
            tokens=settings.get("batch_tokens", 0),
        )

    def _with_missing(self, missing: str | None) -> Preprocessing:
        """Return the preprocessing with another setting `missing`, if it is not None. Raises SettingError if it does
        not apply."""
        known = self.preprocessing
        if missing is None:
            return known
        check_value(missing in MISSING_CHOICES, "missing", missing, join(MISSING_CHOICES, "or"), SettingError)
        if not isinstance(known, TablePreprocessing):
            raise IncompatibleSettingError(
                f"Invalid missing={missing}: only for tables, and this run was trained on {self.spec.kind} data. Leave "
                "it out."
            )
        return known.with_missing(missing)

    def _examples(self, sources: Sequence[Any], preprocessing: Preprocessing | None = None) -> Split:
        """Return new files or rows, prepared like the training split.

        Emit a warning for each value that split did not have.
        """
        for source in sources:
            reject_unsupported_file(source)
        split = (preprocessing or self.preprocessing).examples(sources)
        _emit_notes(split, 4)
        reject_longer = getattr(split, "reject_longer", None)
        context = getattr(getattr(self.model, "config", None), "context_length", None)
        if reject_longer is not None and context is not None:
            reject_longer(context)
        return split


def _emit_notes(split: Split, stacklevel: int) -> None:
    """Emit each note on new data as a warning."""
    for sentence in getattr(split, "notes", ()):
        warnings.warn(sentence, CutawayWarning, stacklevel=stacklevel)
