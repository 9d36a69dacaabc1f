# Reads the version from nojit.h. While the major version is 0, only the exact version that a program requests is compatible.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../include/nojit.h" _nojit_lines REGEX "^#define NOJIT_VERSION_(MAJOR|MINOR) [0-9]+$")
string(REGEX MATCHALL "[0-9]+" _nojit_numbers "${_nojit_lines}")
string(REPLACE ";" "." PACKAGE_VERSION "${_nojit_numbers}")
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
