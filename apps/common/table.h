// Tables for people (aligned text, markdown) and for programs (csv, json) from the same cells.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "adamk/base/json.h"

namespace adamk {

enum class TableFormat { text, markdown, csv, json };

/// What people read and what programs get. A default-made cell is empty ("-", null).
struct Cell {
  std::string text = "-";
  Json value;

  Cell() = default;
  Cell(std::string string) : text(std::move(string)), value(text) {}
  Cell(std::string_view string) : Cell(std::string(string)) {}
  Cell(const char* string) : Cell(std::string(string)) {}
  Cell(bool flag) : text(flag ? "yes" : "no"), value(flag) {}
  template <std::integral T>
  Cell(T number) : text(std::to_string(number)), value(number) {}
  /// A number shown with `digits` decimals; NaN is an empty cell.
  Cell(double number, int digits);
};

struct Column {
  std::string name;
  bool right = false;   // numbers
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;   // each as long as `columns`
};

/// json: an array of objects, column names as keys. csv: RFC 4180, values as programs get them.
std::string render(const Table& table, TableFormat format);

/// Columns a terminal needs for UTF-8 text: code points, control characters not counted.
std::size_t display_width(std::string_view text);

}  // namespace adamk
