"""Files of formats that know host memory alone, read in a session on a device."""

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import assert_nothing_held
from csv_plugin import built_csv_plugin


@pytest.fixture(scope="session")
def csv_plugin(tmp_path_factory):
    return built_csv_plugin(tmp_path_factory.mktemp("csv-plugin"))


def test_a_file_of_a_format_of_host_memory_is_read_onto_the_session_s_device(cuda, csv_plugin, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    with cd.Session(cuda, plugins=[csv_plugin]) as session:
        table = session.read(path)
        assert (table.device, table["a"].device) == (cuda, cuda)
        assert pa.table(table).to_pydict() == {"a": ["1", "2"], "b": ["x", "y"]}
        del table
        assert_nothing_held(session)
