"""scripts/check-arrows on small made-up houses: it must say no where an arrow points the wrong way, and only there."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(sys.argv.pop()).resolve()
ROOMS = """adamk_room(base)
adamk_room(dag DEPENDS base)
adamk_room(cost DEPENDS dag)
adamk_room(runtime DEPENDS base CUDA)
"""


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {"CMakeLists.txt": ROOMS, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True)
        return done.returncode, done.stdout


class CheckArrows(unittest.TestCase):
    def test_a_dependency_of_a_dependency_may_be_included(self):
        self.assertEqual(run({"libcost/src/a.cpp": '#include "adamk/base/x.h"\n#include "adamk/dag/y.h"\n'})[0], 0)

    def test_a_room_further_down_may_not_be_included(self):
        status, text = run({"libbase/src/a.cpp": '// first line\n#include "adamk/dag/y.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("libbase/src/a.cpp:2: adamk/dag/y.h: libbase may not include libdag", text)

    def test_public_headers_are_checked_as_well(self):
        self.assertEqual(run({"libdag/include/adamk/dag/y.h": "#include <adamk/cost/z.h>\n"})[0], 1)

    def test_nothing_includes_apps(self):
        self.assertEqual(run({"libdag/src/a.cpp": '#include "common/flags.h"\n'})[0], 1)

    def test_the_private_folder_of_another_room_is_refused(self):
        self.assertEqual(run({"libdag/src/a.cpp": '#include "libbase/src/inner.h"\n'})[0], 1)

    def test_the_database_belongs_to_one_room(self):
        self.assertEqual(run({"libdag/src/a.cpp": "#include <SQLiteCpp/Database.h>\n"})[0], 1)

    def test_cuda_headers_only_where_the_room_is_marked_so(self):
        self.assertEqual(run({"libruntime/src/a.cpp": "#include <cuda.h>\n"})[0], 0)
        self.assertEqual(run({"libdag/src/a.cpp": "#include <cuda.h>\n"})[0], 1)

    def test_tests_may_include_what_they_like(self):
        self.assertEqual(run({"libbase/tests/a_test.cpp": '#include "adamk/cost/z.h"\n'})[0], 0)

    def test_a_house_without_rooms_is_not_called_sound(self):
        self.assertEqual(run({"CMakeLists.txt": "project(x)\n"})[0], 1)


if __name__ == "__main__":
    unittest.main()
