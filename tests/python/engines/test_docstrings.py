"""Every public docstring of the modules for these libraries has an example, which runs as docs/testing.md describes."""

import os
import shutil
import sys

import datafusion
import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "tests/python/package"))
import docstrings  # noqa: E402

MODULES = ["dask", "datafusion", "ray", "spark", "torch"]

CASES = [
    pytest.param(module, name, text, id=name)
    for module in MODULES
    for name, text in docstrings.documented([f"crossdock.{module}"]).items()
]


@pytest.fixture(scope="module")
def ray():
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def spark():
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
    yield session
    session.stop()


@pytest.mark.parametrize(("module", "name", "text"), CASES)
def test_docstring_has_an_example_that_runs(module, name, text, session, tmp_path, request):
    code = docstrings.code_of(name, text)
    assert code, f"the docstring of {name} has no example"
    if "Loader" in code:
        pytest.importorskip("torch")
    names = docstrings.namespace(session, tmp_path)
    if module in ("ray", "spark"):
        names[module] = request.getfixturevalue(module)
    if module == "datafusion":
        names[module] = datafusion
    docstrings.run(name, text, names)
