"""Scans of datasets of Hugging Face."""

import datasets
import pytest

import crossdock as cd
from crossdock.torch import scan_of


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = datasets.Dataset.from_dict(
        {"id": range(1000), "text": [str(i) for i in range(1000)], "tokens": [[i, i + 1] for i in range(1000)]}
    )
    folder = str(tmp_path_factory.mktemp("hf") / "saved")
    made.save_to_disk(folder, num_shards=3)
    return datasets.load_from_disk(folder)


def test_dataset_is_read_unchanged(dataset, session):
    scan = scan_of(dataset, session)
    assert scan.to_table().to_pyarrow().equals(dataset.with_format("arrow")[:])


def test_dataset_whose_changes_are_in_its_files_is_read(dataset, session):
    for changed in (
        dataset.remove_columns("text"),
        dataset.select_columns(["tokens", "id"]),
        dataset.map(lambda row: {"id": row["id"] * 2}),
        dataset.shuffle(seed=1).flatten_indices(),
    ):
        scan = scan_of(changed, session)
        assert scan.schema.names == changed.column_names
        assert scan.to_table().to_pyarrow().to_pylist() == changed.to_list()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda dataset: dataset.shuffle(seed=1), r"call flatten_indices\(\)"),
        (lambda dataset: dataset.select([5, 1]), r"call flatten_indices\(\)"),
        (lambda dataset: dataset.select(range(5, 9)), r"differs from its files by slice: call save_to_disk"),
        (lambda dataset: dataset.rename_column("id", "x"), "differs from its files by rename_columns"),
        (lambda dataset: dataset.add_column("x", [0] * 1000), "rows or columns of the dataset are in memory"),
        (lambda dataset: dataset.with_transform(lambda rows: rows), r"call reset_format\(\)"),
        (lambda dataset: dataset.with_format("numpy", dtype="float32"), "format 'numpy' with dtype"),
        (lambda dataset: type(dataset).from_dict({"x": [1]}), "the dataset is in memory: call save_to_disk"),
        (lambda dataset: dataset.to_iterable_dataset(), "expected a datasets.Dataset, got IterableDataset"),
        (lambda dataset: [1], "expected a datasets.Dataset, got list"),
    ],
)
def test_dataset_that_differs_from_its_files_is_rejected(dataset, session, change, text):
    with pytest.raises(cd.UsageError, match=text):
        scan_of(change(dataset), session)
