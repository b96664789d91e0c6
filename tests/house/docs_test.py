"""What the pages say of the project is true: links lead somewhere, every warning has its page and every page its warning, and
every test that README's status table names exists.

    python3 docs_test.py SOURCE CTEST BUILD
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE, CTEST, BUILD = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def pages():
    return [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]


def sources():
    for folder in [*SOURCE.glob("lib*"), SOURCE / "apps"]:
        for path in folder.rglob("*"):
            if path.suffix in {".cpp", ".h", ".cuh"}:
                yield path


def without_code(text):
    """Blocks of code and `code` hold no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?m)^    .*$|```.*?```", "", text, flags=re.S))


def test_names():
    listing = subprocess.run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"], check=True, capture_output=True)
    return {test["name"] for test in json.loads(listing.stdout)["tests"]}


def unit_test_names():
    names = set()
    for path in [*SOURCE.glob("lib*/tests/*.cpp"), *SOURCE.glob("apps/common/tests/*.cpp"), *SOURCE.glob("tests/*/*.cpp")]:
        for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text()):
            names.update({f"{suite}.{name}", f"{suite}.*"})
    return names


def status_rows():
    """The rows of the table under '## Status': what works, and the last cell."""
    section = re.search(r"^## Status\n(.*?)(?=^## |\Z)", (SOURCE / "README.md").read_text(), re.S | re.M)
    rows = [line.strip().strip("|").split("|") for line in section[1].splitlines() if line.startswith("|")]
    return [(row[0].strip(), row[-1]) for row in rows[2:]]


class Docs(unittest.TestCase):
    def test_links_lead_to_files_of_the_project(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", without_code(page.read_text())):
                if not re.match(r"https?:", target):
                    self.assertTrue((page.parent / target).exists(), f"{page.relative_to(SOURCE)} links to {target}")

    def test_every_page_that_a_message_or_comment_names_exists(self):
        for path in sources():
            for page in re.findall(r"docs/[\w/-]+\.md", path.read_text()):
                self.assertTrue((SOURCE / page).is_file(), f"{path.relative_to(SOURCE)} names {page}")

    def test_every_warning_page_is_in_the_list(self):
        listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (SOURCE / "docs/warnings/README.md").read_text()))
        there = {page.name for page in (SOURCE / "docs/warnings").glob("*.md")} - {"README.md"}
        self.assertEqual(listed, there)

    def test_every_test_in_the_status_table_exists(self):
        rows, known = status_rows(), test_names() | unit_test_names()
        self.assertGreater(len(rows), 5)
        for what, cell in rows:
            named = re.findall(r"`([^`]+)`", cell)
            self.assertTrue(named, f"'{what}' names no test")
            for name in named:
                self.assertIn(name, known, f"'{what}' is shown by a test that does not exist")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
