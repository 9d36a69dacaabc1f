/* Included last by what runs once for a table, an image or a kind of call, and not at each launch: it is compiled to be small. */
#ifndef NOJIT_COLD_H
#define NOJIT_COLD_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os")
#endif

#endif
