target_link_libraries(adamk_profile PRIVATE adamk_sqlite)
target_compile_definitions(adamk_profile PRIVATE ADAMK_CUDA_FOUND_HOME="${ADAMK_CUDA_FOUND_HOME}")
adamk_embed(adamk_profile
  libprofile/device/clock_probe.cuh libprofile/device/hop_probe.cuh libprofile/device/read_probe.cuh)

# The tuning database's schema and migrations, from the files that document them (their names are no C++ identifiers, so
# adamk_embed does not apply).
foreach(sql tuning-db tuning-db-1-to-2)
  string(REPLACE "-" "_" identifier ${sql})
  set(input ${CMAKE_SOURCE_DIR}/schemas/${sql}.sql)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_sql/embedded/${identifier}.h)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAME=embedded_${identifier} -P ${ADAMK_EMBED_SCRIPT}
    DEPENDS ${input} ${ADAMK_EMBED_SCRIPT} COMMENT "Embedding ${sql}.sql" VERBATIM)
  target_sources(adamk_profile PRIVATE ${output})
endforeach()
target_include_directories(adamk_profile PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded_sql)
