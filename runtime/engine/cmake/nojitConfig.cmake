# Defines the target nojit::nojit: libnojit and its headers, beside this file. `nojit config --cmake-dir` prints the folder.
include_guard()
get_filename_component(_nojit_engine "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
get_filename_component(_nojit_library "${_nojit_engine}/../libnojit.so.0" ABSOLUTE)
if(NOT EXISTS "${_nojit_library}")
  set(nojit_FOUND FALSE)
  set(nojit_NOT_FOUND_MESSAGE "expected ${_nojit_library}, which an installation of nojit has")
  return()
endif()
add_library(nojit::nojit SHARED IMPORTED)
set_target_properties(nojit::nojit PROPERTIES
  IMPORTED_LOCATION "${_nojit_library}"
  IMPORTED_SONAME "libnojit.so.0"
  INTERFACE_INCLUDE_DIRECTORIES "${_nojit_engine}/include")
unset(_nojit_engine)
unset(_nojit_library)
