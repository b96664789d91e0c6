#include "adamk/base/json.h"

#include <cmath>

#include "adamk/base/file.h"
#include "temporary_folder.h"

namespace adamk {
namespace {

using JsonTest = TemporaryFolder;

std::string message_of(const Result<Json>& result) { return result ? "accepted" : result.error().message; }

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST_F(JsonTest, SyntaxErrorsCarryLineAndColumn) {
  EXPECT_EQ(message_of(parse_json("{\n  \"a\": True\n}", "f.json")).rfind("f.json:2:8: not JSON", 0), 0u)
      << message_of(parse_json("{\n  \"a\": True\n}", "f.json"));
  EXPECT_NE(message_of(parse_json("{\"a\": 1", "f.json")).find("f.json:1:"), std::string::npos);
  EXPECT_NE(message_of(parse_json("", "f.json")).find("f.json:1:1: not JSON"), std::string::npos);
  EXPECT_NE(message_of(parse_json("{} {}", "f.json")).find("not JSON"), std::string::npos);
  EXPECT_NE(message_of(parse_json("[1e999]", "f.json")).find("f.json:1:"), std::string::npos);
  EXPECT_FALSE(parse_json("\"\xff\"", "f.json"));
}

TEST_F(JsonTest, DuplicateKeysAreRefusedWithTheirPath) {
  EXPECT_EQ(message_of(parse_json(R"({"a": [{"b": 1, "b": 2}]})", "f.json")), "f.json: a[0]: duplicate key 'b'");
  EXPECT_EQ(message_of(parse_json(R"({"a": 1, "a": 2})", "f.json")), "f.json: duplicate key 'a'");
  EXPECT_TRUE(parse_json(R"({"a": {"b": 1}, "b": {"a": 1}})", "f.json"));
}

TEST_F(JsonTest, NestingIsBoundedAt64) {
  EXPECT_TRUE(parse_json(nested(64), "f.json"));
  EXPECT_NE(message_of(parse_json(nested(65), "f.json")).find("deeper than 64"), std::string::npos);
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "f.json"));
  EXPECT_FALSE(parse_yaml(nested(65), "f.yaml"));
  EXPECT_FALSE(parse_yaml(std::string(100'000, '['), "f.yaml"));
  EXPECT_TRUE(parse_yaml(nested(64), "f.yaml"));
}

TEST_F(JsonTest, NestingWithoutEndIsRefusedWhateverItIsMadeOf) {
  const auto repeated = [](std::string_view piece) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += piece;
    return text;
  };
  for (const char* piece : {"[", "{\"a\":", "[{\"a\":", "[[],"}) EXPECT_FALSE(parse_json(repeated(piece), "f.json")) << piece;
  for (const char* piece : {"[", "{", "{a: ", "[{a: ", "- ", "? ", "- ? ", "[[],", "!a "}) {
    EXPECT_FALSE(parse_yaml(repeated(piece) + "x", "f.yaml")) << piece;
  }
  std::string stairs;   // every line a block deeper
  for (int depth = 0; depth < 3000; ++depth) stairs += std::string(static_cast<std::size_t>(depth), ' ') + "a:\n";
  EXPECT_FALSE(parse_yaml(stairs, "f.yaml"));
}

TEST_F(JsonTest, KeysKeepTheirOrder) {
  EXPECT_EQ(parse_json(R"({"z": 1, "a": {"y": 2, "b": [3]}})", "f").value().dump(), R"({"z":1,"a":{"y":2,"b":[3]}})");
}

TEST_F(JsonTest, NonFiniteLiteralsParseButNoReaderTakesThem) {
  const auto document =
      parse_json(R"({"say \"NaN\"": "Infinity", "a": [NaN, Infinity, -Infinity, 1], "b": "NaN"})", "f");
  ASSERT_TRUE(document) << document.error().message;
  const JsonView root(*document, "f");
  EXPECT_EQ(root.at("say \"NaN\"")->text().value(), "Infinity");
  EXPECT_EQ(root.at("b")->text().value(), "NaN");
  const auto items = root.at("a")->items().value();
  EXPECT_TRUE(std::isnan(items[0].value().get<double>()));
  EXPECT_EQ(items[2].value().get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(items[1].number().error().message, "f: a[1]: must be a finite number, is inf");
  EXPECT_FALSE(items[0].integer());
  EXPECT_FALSE(items[0].text());
  EXPECT_EQ(items[3].integer().value(), 1);
}

TEST_F(JsonTest, NonFiniteLiteralsAreNoKeysAndMoveNoPositions) {
  EXPECT_FALSE(parse_json("{NaN: 1}", "f"));
  EXPECT_FALSE(parse_json("[Infinit]", "f"));
  EXPECT_EQ(message_of(parse_json("[Infinity, ?]", "f")).rfind("f:1:12:", 0), 0u)
      << message_of(parse_json("[Infinity, ?]", "f"));
}

TEST_F(JsonTest, IntegersMayBeWrittenWithAPointButNotAsText) {
  const Json document = {{"whole", 5.0}, {"half", 5.5}, {"text", "5"}, {"large", 18446744073709551615u}, {"ok", 5}};
  const JsonView root(document, "f");
  EXPECT_EQ(root.at("whole")->integer().value(), 5);
  EXPECT_EQ(root.at("ok")->integer(5, 5).value(), 5);
  EXPECT_FALSE(root.at("half")->integer());
  EXPECT_EQ(root.at("text")->integer().error().message, "f: text: must be an integer, is a string");
  EXPECT_EQ(root.at("text")->number().error().message, "f: text: must be a number, is a string");
  EXPECT_FALSE(root.at("large")->integer());
  EXPECT_EQ(root.at("ok")->integer(1, 4).error().message, "f: ok: 5 is outside 1 to 4");
}

TEST_F(JsonTest, AbsentAndNullAreToldApart) {
  const Json document = {{"none", nullptr}, {"list", Json::array({Json{{"a", 1}}})}};
  const JsonView root(document, "f");
  EXPECT_FALSE(root.find("none"));
  EXPECT_FALSE(root.find("other"));
  EXPECT_TRUE(root.has("none"));
  EXPECT_FALSE(root.has("other"));
  EXPECT_EQ(root.at("other").error().message, "f: the key 'other' is missing");
  EXPECT_EQ(root.at("list")->items().value()[0].at("b").error().message, "f: list[0]: the key 'b' is missing");
}

TEST_F(JsonTest, UnknownKeysNameTheKnownOnes) {
  const Json document = {{"a", 1}, {"x", 2}};
  EXPECT_EQ(JsonView(document, "f").only_keys({"a", "b"}).error().message, "f: unknown key 'x'; known are a, b");
  EXPECT_TRUE(JsonView(document, "f").only_keys({"x", "a"}));
  EXPECT_FALSE(JsonView(Json::array(), "f").only_keys({}));
}

TEST_F(JsonTest, FormatAndVersionAreChecked) {
  const Json document = {{"format", "adamk.plan"}, {"version", 2}};
  const JsonView root(document, "f");
  EXPECT_TRUE(expect_format(root, "adamk.plan", 2));
  EXPECT_NE(expect_format(root, "adamk.plan", 1).error().message.find("newer"), std::string::npos);
  EXPECT_NE(expect_format(root, "adamk.plan", 3).error().message.find("older"), std::string::npos);
  EXPECT_NE(expect_format(root, "adamk.model", 2).error().message.find("'adamk.plan'"), std::string::npos);
}

TEST_F(JsonTest, YamlScalarsFollowTheCoreSchema) {
  const auto document = parse_yaml(
      "[1, -2, +3, 0x1F, 0o17, 1.5, 1e-6, .5, 2., true, FALSE, ~, null, '', yes, 0b1, 1_000, \"1\", 'true', 1e, -, "
      "08]\n",
      "f.yaml");
  ASSERT_TRUE(document) << document.error().message;
  // Worked out from section 10.3.2: no yes/no, no binary, no underscores; 08 is a decimal integer.
  EXPECT_EQ(document->dump(),
            R"([1,-2,3,31,15,1.5,1e-06,0.5,2.0,true,false,null,null,"","yes","0b1","1_000","1","true","1e","-",8])");
}

TEST_F(JsonTest, YamlBecomesTheSameTreeAsJson) {
  const auto yaml =
      parse_yaml("# model\nname: l20\nrope:\n  kind: linear\n  factor: 2.0\nlist:\n- 1\n- {a: b}\nnone:\n", "f");
  const auto json = parse_json(
      R"({"name": "l20", "rope": {"kind": "linear", "factor": 2.0}, "list": [1, {"a": "b"}], "none": null})", "f");
  ASSERT_TRUE(yaml) << yaml.error().message;
  EXPECT_EQ(*yaml, *json);
}

TEST_F(JsonTest, YamlTricksAreRefusedWithTheirLine) {
  EXPECT_EQ(message_of(parse_yaml("a: 1\na: 2\n", "f.yaml")), "f.yaml:2:1: duplicate key 'a'");
  EXPECT_NE(message_of(parse_yaml("a: &x 1\nb: 2\n", "f.yaml")).find("f.yaml:1:"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("a: &x 1\nb: *x\n", "f.yaml")).find("anchors"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("a: !!python/name:os 1\n", "f.yaml")).find("tag"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("? [1, 2]\n: 3\n", "f.yaml")).find("key"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("a: [1\n", "f.yaml")).find("not YAML"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("a: 1\n---\nb: 2\n", "f.yaml")).find("more than one"), std::string::npos);
  EXPECT_NE(message_of(parse_yaml("a: 99999999999999999999\n", "f.yaml")).find("64 bits"), std::string::npos);
}

TEST_F(JsonTest, DocumentsAreReadByExtensionAndBounded) {
  EXPECT_EQ(read_document(write("a.yaml", "a: 1\n")).value().dump(), R"({"a":1})");
  EXPECT_FALSE(read_document(write("a.json", "a: 1\n")));
  EXPECT_FALSE(read_document(write("b.json", "[1, 2, 3]"), 4));
}

TEST_F(JsonTest, WrittenDocumentsAreIndentedAndReadBack) {
  const Json document = {{"b", 1}, {"a", {1.5}}};
  ASSERT_TRUE(write_json(folder_ / "out.json", document));
  EXPECT_EQ(read_file(folder_ / "out.json", 1000).value(), "{\n  \"b\": 1,\n  \"a\": [\n    1.5\n  ]\n}\n");
  EXPECT_EQ(read_document(folder_ / "out.json").value(), document);
}

}  // namespace
}  // namespace adamk
