# The parts of bench/tree_attention that need no GPU, which tests/bench tests, too.
if(TARGET bench_tree_attention_host)
  return()
endif()
set(folder ${CMAKE_CURRENT_LIST_DIR})
set(generated ${PROJECT_BINARY_DIR}/bench/generated)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/anchors.csv)
file(READ ${folder}/anchors.csv bench_anchors_csv)
configure_file(${folder}/anchors_text.cc.in ${generated}/anchors_text.cc @ONLY)
add_library(bench_tree_attention_host OBJECT
  ${folder}/cells.cc ${folder}/item_plan.cc ${folder}/range_costs.cc ${folder}/snapshots.cc
  ${folder}/workload.cc ${generated}/anchors_text.cc)
target_include_directories(bench_tree_attention_host PUBLIC
  ${folder} ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(bench_tree_attention_host PRIVATE coppice_settings)
coppice_together(bench_tree_attention_host)
coppice_cold(bench_tree_attention_host IDLE)
