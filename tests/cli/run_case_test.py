"""The golden runner itself: a case that should fail fails, for each kind of expectation."""
import io
import contextlib
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run_case  # noqa: E402


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        case = pathlib.Path(folder) / "x.case"
        case.write_text(text)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = run_case.run_case(case, pathlib.Path("/bin"), pathlib.Path(folder))
        return status, output.getvalue()


class Runner(unittest.TestCase):
    def test_a_literal_line_must_match_whole(self):
        self.assertEqual(run("$ echo one two\n| one two\n")[0], 0)
        self.assertEqual(run("$ echo one two\n| one\n")[0], 1)

    def test_dots_in_a_line_stand_for_any_text(self):
        self.assertEqual(run("$ echo one 42 us\n| one ... us\n")[0], 0)
        self.assertEqual(run("$ echo one 42 ms\n| one ... us\n")[0], 1)

    def test_a_line_of_dots_stands_for_any_number_of_lines(self):
        for middle in ("", "b\\n", "b\\nc\\n"):
            self.assertEqual(run(f"$ printf 'a\\n{middle}z\\n'\n| a\n| ...\n| z\n")[0], 0, middle)
        self.assertEqual(run("$ printf 'a\\nb\\n'\n| a\n| ...\n| z\n")[0], 1)

    def test_lines_not_expected_are_a_failure(self):
        self.assertEqual(run("$ printf 'a\\nb\\n'\n| a\n")[0], 1)

    def test_the_status_is_zero_unless_stated(self):
        self.assertEqual(run("$ false\n")[0], 1)
        self.assertEqual(run("$ false\nexit 1\n")[0], 0)
        self.assertEqual(run("$ true\nexit 1\n")[0], 1)

    def test_stderr_is_looked_at_apart_from_stdout(self):
        self.assertEqual(run("$ ls /no/such/file\nexit 2\n! ...'/no/such/file'...\nsilent stdout\n")[0], 0)
        self.assertEqual(run("$ echo x\n! x\n")[0], 1)
        self.assertEqual(run("$ echo x\nsilent stdout\n")[0], 1)

    def test_files_written_and_kept_are_seen_by_later_commands(self):
        self.assertEqual(run("file a.txt\n    one\n      two\n$ cat a.txt > b.txt\n| one\n|   two\n$ cmp a.txt b.txt\n")[0], 0)

    def test_characters_special_to_regular_expressions_are_literal(self):
        self.assertEqual(run("$ echo a.b\n| a+b\n")[0], 1)
        self.assertEqual(run("$ echo axb\n| a.b\n")[0], 1)

    def test_a_line_that_is_not_understood_is_an_error(self):
        with self.assertRaises(run_case.BadCase):
            run("$ true\nexpect nothing\n")
        with self.assertRaises(run_case.BadCase):
            run("| belongs to nothing\n")

    def test_a_failure_shows_the_command_and_what_it_printed(self):
        text = run("$ echo seen\n| other\n")[1]
        self.assertIn("$ echo seen", text)
        self.assertIn("    seen\n", text)


if __name__ == "__main__":
    unittest.main()
