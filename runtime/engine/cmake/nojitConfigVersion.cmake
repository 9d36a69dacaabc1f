# The version is that of nojit.h. While its major is 0, a program takes no other minor than the one that it asks for.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../include/nojit.h" _nojit_lines REGEX "^#define NOJIT_VERSION_(MAJOR|MINOR) [0-9]+$")
string(REGEX MATCHALL "[0-9]+" _nojit_numbers "${_nojit_lines}")
string(REPLACE ";" "." PACKAGE_VERSION "${_nojit_numbers}")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
