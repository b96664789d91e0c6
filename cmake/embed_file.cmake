# cmake -DINPUT=file -DOUTPUT=header -DNAME=identifier -P embed_file.cmake: a header holding the file's text as a
# constexpr std::string_view (see AdamkEmbed.cmake).
file(SIZE ${INPUT} size)
# What a C++ compiler must accept as one string literal (annex B of the standard); our files stay far below it.
if(size GREATER 65000)
  message(FATAL_ERROR "${INPUT} is ${size} bytes; a string literal holds 65000. Split the file.")
endif()
file(READ ${INPUT} text)
string(FIND "${text}" ")adamk_text\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "${INPUT} contains the delimiter )adamk_text\" that closes its literal")
endif()
get_filename_component(name ${INPUT} NAME)
file(WRITE ${OUTPUT} "// Generated from ${name}; edit that file.\n#pragma once\n\n#include <string_view>\n\nnamespace adamk {\n\n"
  "inline constexpr std::string_view ${NAME} = R\"adamk_text(${text})adamk_text\";\n\n}  // namespace adamk\n")
