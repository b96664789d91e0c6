# adamk_embed(TARGET FILE...): makes the text of each FILE available to TARGET's sources at build time. For .../X.cuh (any
# extension) the target may write
#     #include "embedded/X.h"      // namespace adamk { inline constexpr std::string_view embedded_X; }
# Device code thus lives in real files that an editor understands, and every binary carries what NVRTC compiles.
# The header is written again whenever the file changes. Stems must be C++ identifiers and distinct within a target.
set(ADAMK_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed_file.cmake)

function(adamk_embed target)
  set(root ${CMAKE_CURRENT_BINARY_DIR}/embedded_${target})
  foreach(file IN LISTS ARGN)
    get_filename_component(path ${file} ABSOLUTE)
    get_filename_component(stem ${path} NAME_WE)
    if(NOT stem MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
      message(FATAL_ERROR "adamk_embed: ${file}: the name '${stem}' is not a C++ identifier; rename the file")
    endif()
    set(header ${root}/embedded/${stem}.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${path} -DOUTPUT=${header} -DNAME=embedded_${stem} -P ${ADAMK_EMBED_SCRIPT}
      DEPENDS ${path} ${ADAMK_EMBED_SCRIPT} COMMENT "Embedding ${stem}" VERBATIM)
    target_sources(${target} PRIVATE ${header})
  endforeach()
  target_include_directories(${target} PRIVATE ${root})
endfunction()
