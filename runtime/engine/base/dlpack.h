/* DLPack's type codes (DLDataTypeCode) under their names in dlpack.h. */
#ifndef NOJIT_BASE_DLPACK_H
#define NOJIT_BASE_DLPACK_H

enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLBfloat = 4,
    kDLBool = 6,
    kDLFloat8_e4m3fn = 10,
    kDLFloat8_e4m3fnuz = 11,
    kDLFloat8_e5m2 = 12,
    kDLFloat8_e5m2fnuz = 13,
};

#endif
