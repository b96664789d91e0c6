// main() of a fuzz target without libFuzzer: `fuzz_NAME [--mutations N] [--seed S] [--dictionary FILE] [--only I] CORPUS...`.
// Every file of the corpus runs as it is, then N mutations of them. Mutation I is a pure function of corpus, seed and I; a
// crash names I, and --only I writes that input to mutation-I and runs it alone.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fuzz.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t largest_input = 1u << 17;
char crash_note[96] = "";   // written from a signal handler

void on_crash(int signal_number) {
  const ssize_t ignored = write(STDERR_FILENO, crash_note, std::string_view(crash_note).size());
  static_cast<void>(ignored);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

/// The quoted strings of a libFuzzer dictionary; \xNN, \\ and \" are the only escapes there are.
std::vector<Bytes> read_dictionary(const std::filesystem::path& path) {
  std::vector<Bytes> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find('"'), end = line.rfind('"');
    if (line.starts_with('#') || begin == std::string::npos || end <= begin) continue;
    Bytes word;
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (line[i] == '\\' && line[i + 1] == 'x' && i + 3 < end) {
        word.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i + 2, 2), nullptr, 16)));
        i += 3;
      } else {
        if (line[i] == '\\') ++i;
        word.push_back(static_cast<std::uint8_t>(line[i]));
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, const std::vector<Bytes>& words, std::uint64_t seed)
      : corpus_(corpus), words_(words), seed_(seed) {}

  Bytes mutation(std::uint64_t index) {
    random_.seed(seed_ * 0x9e3779b97f4a7c15u + index);
    Bytes input = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > largest_input) input.resize(largest_input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound); }

  void change(Bytes& input) {
    const auto at = [&] { return input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)); };
    if (input.empty()) input.push_back(static_cast<std::uint8_t>(below(256)));
    switch (below(8)) {
      case 0: input[below(input.size())] ^= static_cast<std::uint8_t>(1u << below(8)); break;
      case 1: input[below(input.size())] = static_cast<std::uint8_t>(below(256)); break;
      case 2: input.resize(below(input.size() + 1)); break;
      case 3: {   // a piece less
        const auto first = at();
        const auto most = std::min<std::size_t>(64, static_cast<std::size_t>(input.end() - first));
        input.erase(first, first + static_cast<std::ptrdiff_t>(below(most + 1)));
        break;
      }
      case 4: insert(input, corpus_[below(corpus_.size())]); break;   // a piece of another file
      case 5: insert(input, input); break;                            // a piece twice
      case 6:
        if (!words_.empty()) {
          const Bytes& word = words_[below(words_.size())];
          input.insert(at(), word.begin(), word.end());
        }
        break;
      default: {   // another number
        static constexpr const char* numbers[] = {"0", "-1", "1", "255", "65536", "2147483647", "2147483648", "-2147483649",
                                                  "9223372036854775807", "-9223372036854775808", "18446744073709551616",
                                                  "1e308", "1e999", "0.5", "NaN", "null", "[]", "{}", "\"\""};
        auto digit = std::find_if(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())), input.end(),
                                  [](std::uint8_t c) { return c >= '0' && c <= '9'; });
        const auto end = std::find_if(digit, input.end(), [](std::uint8_t c) { return c < '0' || c > '9'; });
        const std::string_view number = numbers[below(std::size(numbers))];
        digit = input.erase(digit, end);
        input.insert(digit, number.begin(), number.end());
      }
    }
  }

  void insert(Bytes& input, const Bytes& from) {
    const std::size_t begin = below(from.size()), length = below(std::min<std::size_t>(256, from.size() - begin) + 1);
    const Bytes piece(from.begin() + static_cast<std::ptrdiff_t>(begin),
                      from.begin() + static_cast<std::ptrdiff_t>(begin + length));
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)), piece.begin(), piece.end());
  }

  const std::vector<Bytes>& corpus_;
  const std::vector<Bytes>& words_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
};

void run(const Bytes& input) { LLVMFuzzerTestOneInput(input.data(), input.size()); }

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t mutations = 0, seed = 1;
  std::int64_t only = -1;
  std::vector<Bytes> words;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag.starts_with("--") && i + 1 == argc) {
      std::fprintf(stderr, "%s needs a value\n", argv[i]);
      return 2;
    }
    if (flag == "--mutations") mutations = std::stoull(argv[++i]);
    else if (flag == "--seed") seed = std::stoull(argv[++i]);
    else if (flag == "--only") only = std::stoll(argv[++i]);
    else if (flag == "--dictionary") words = read_dictionary(argv[++i]);
    else if (std::filesystem::is_directory(argv[i]))
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
    else if (std::filesystem::is_regular_file(argv[i])) files.emplace_back(argv[i]);
    else {
      std::fprintf(stderr, "%s: no such file or folder\n", argv[i]);
      return 2;
    }
  }
  std::sort(files.begin(), files.end());   // directory order is the file system's
  if (files.empty()) {
    std::fprintf(stderr, "no corpus: name at least one file, or a folder that holds some\n");
    return 2;
  }
  std::vector<Bytes> corpus;
  for (const auto& path : files) corpus.push_back(read_bytes(path));
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(number, on_crash);

  Mutator mutator(corpus, words, seed);
  if (only >= 0) {
    const Bytes input = mutator.mutation(static_cast<std::uint64_t>(only));
    std::ofstream("mutation-" + std::to_string(only), std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    run(input);
    return 0;
  }
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    std::snprintf(crash_note, sizeof crash_note, "fuzz: crashed on %s\n", files[i].filename().c_str());
    run(corpus[i]);
  }
  for (std::uint64_t i = 0; i < mutations; ++i) {
    std::snprintf(crash_note, sizeof crash_note, "fuzz: crashed on mutation %llu of seed %llu\n",
                  static_cast<unsigned long long>(i), static_cast<unsigned long long>(seed));
    run(mutator.mutation(i));
  }
  std::printf("%zu files, %llu mutations\n", corpus.size(), static_cast<unsigned long long>(mutations));
}
