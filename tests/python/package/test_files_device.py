"""Formats that support only host memory, in a session on a device."""

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed
from csv_plugin import built_csv_plugin


@pytest.fixture(scope="session")
def csv_plugin(tmp_path_factory):
    return built_csv_plugin(tmp_path_factory.mktemp("csv-plugin"))


def test_host_format_is_read_to_the_sessions_device(cuda, csv_plugin, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    with cd.Session(cuda, plugins=[csv_plugin]) as session:
        table = session.read(path)
        assert (table.device, table["a"].device) == (cuda, cuda)
        assert pa.table(table).to_pydict() == {"a": ["1", "2"], "b": ["x", "y"]}
        del table
        assert_all_memory_freed(session)
