"""The view of tasks that were learned one after another says what the matrix says."""

from __future__ import annotations

from cutaway.views.run.task_results import CURVES, accuracy_over_time

FOUND = {"names": ["0 1", "2 3", "4 5"], "accuracy": [[0.9, 0.0, 0.1], [0.6, 0.8, 0.2], [0.2, 0.5, 1.0]]}


def test_the_matrix_has_tasks_as_rows_and_times_as_columns() -> None:
    view = accuracy_over_time(FOUND, "test")
    matrix, curves = view["drawings"]
    assert matrix["values"] == [[0.9, 0.6, 0.2], [0.0, 0.8, 0.5], [0.1, 0.2, 1.0]]
    assert (matrix["rows"], matrix["columns"]) == (["1: 0 1", "2: 2 3", "3: 4 5"], ["1", "2", "3"])
    assert [row[1:] for row in view["table"]["rows"]] == matrix["values"]
    mean, *tasks = curves["series"]
    assert [[x, round(y, 6)] for x, y in mean["points"]] == [[1, 0.9], [2, 0.7], [3, round(1.7 / 3, 6)]]
    assert [task["points"] for task in tasks] == [  # each from when it was learned on
        [[1, 0.9], [2, 0.6], [3, 0.2]], [[2, 0.8], [3, 0.5]], [[3, 1.0]],
    ]  # fmt: skip
    said = view["summary"].replace("\u202f", " ")
    assert "after a task is learned is 90.0 %, at the end 56.7 %" in said
    assert "Task 1: 0 1 is forgotten most: 90.0 %, then 20.0 %." in said


def test_what_loses_nothing_and_what_was_learned_at_once_says_so() -> None:
    assert (
        "is forgotten most"
        not in accuracy_over_time({**FOUND, "accuracy": [[0.5, 0, 0], [0.5, 0.5, 0], [0.6, 0.5, 0.5]]}, "test")[
            "summary"
        ]
    )
    once = accuracy_over_time({**FOUND, "accuracy": [[0.9, 0.7, 0.8]]}, "val")
    assert [drawing["kind"] for drawing in once["drawings"]] == ["rows"]
    assert "lowest accuracy over 3 tasks is 70.0\u202f%, on 2: 2 3" in once["summary"]


def test_of_many_tasks_the_mean_alone_has_a_curve() -> None:
    n = CURVES + 1
    found = {"names": [f"order {t}" for t in range(n)], "accuracy": [[0.5] * n] * n}
    assert len(accuracy_over_time(found, "test")["drawings"][1]["series"]) == 1
