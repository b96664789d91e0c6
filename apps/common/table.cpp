#include "common/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace adamk {

namespace {

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::size_t shown = display_width(text);
  const std::string fill(width > shown ? width - shown : 0, ' ');
  return right ? fill + text : text + fill;
}

std::vector<std::size_t> widths(const Table& table) {
  std::vector<std::size_t> result;
  for (const Column& column : table.columns) result.push_back(display_width(column.name));
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size(); ++i) result[i] = std::max(result[i], display_width(row[i].text));
  return result;
}

std::string line(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

std::string render_text(const Table& table) {
  const auto width = widths(table);
  std::string head, rule, body;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string gap = i == 0 ? "" : "  ";
    head += gap + pad(table.columns[i].name, width[i], table.columns[i].right);
    rule += gap + std::string(width[i], '-');
  }
  for (const auto& row : table.rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i)
      text += (i == 0 ? "" : "  ") + pad(row[i].text, width[i], table.columns[i].right);
    body += line(text);
  }
  return line(head) + line(rule) + body;
}

std::string markdown_cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : c == '\n' ? std::string(" ") : std::string(1, c);
  return result;
}

std::string render_markdown(const Table& table) {
  std::string text = "|", rule = "|";
  for (const Column& column : table.columns) {
    text += ' ' + markdown_cell(column.name) + " |";
    rule += column.right ? "---:|" : "---|";
  }
  text += '\n' + rule + '\n';
  for (const auto& row : table.rows) {
    text += '|';
    for (const Cell& cell : row) text += ' ' + markdown_cell(cell.text) + " |";
    text += '\n';
  }
  return text;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_value(const Cell& cell) {
  if (cell.value.is_null()) return "";
  if (cell.value.is_string()) return csv_field(cell.value.get<std::string>());
  return csv_field(cell.value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string render_csv(const Table& table) {
  std::string text;
  for (std::size_t i = 0; i < table.columns.size(); ++i) text += (i == 0 ? "" : ",") + csv_field(table.columns[i].name);
  text += '\n';
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + csv_value(row[i]);
    text += '\n';
  }
  return text;
}

std::string render_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i) object[table.columns[i].name] = row[i].value;
    rows.push_back(std::move(object));
  }
  return rows.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

Cell::Cell(double number, int digits) {
  if (!std::isfinite(number)) return;
  text = fmt::format("{:.{}f}", number, digits);
  value = number;
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && (byte & 0xC0) != 0x80;   // continuation bytes belong to the code point before
  }));
}

std::string render(const Table& table, TableFormat format) {
  switch (format) {
    case TableFormat::text: return render_text(table);
    case TableFormat::markdown: return render_markdown(table);
    case TableFormat::csv: return render_csv(table);
    case TableFormat::json: return render_json(table);
  }
  return {};
}

}  // namespace adamk
