#include "driver/query.h"

bool nj_driver_version(int *version, nj_error *error)
{
    return nj_driver_ready(error) && nj_outcome_good(NJ_TRY(cuDriverGetVersion, version), error);
}

bool nj_device_count(int *count, nj_error *error)
{
    return nj_driver_ready(error) && nj_outcome_good(NJ_TRY(cuDeviceGetCount, count), error);
}

bool nj_device_find(int device, int *ordinal, nj_error *error)
{
    *ordinal = device == NJ_CURRENT_DEVICE ? nj_current_device(error) : device;
    if (device == NJ_CURRENT_DEVICE) {
        return *ordinal >= 0;
    }
    return (device >= 0 && device < NJ_DEVICES_MAX) ||
           nj_refuse_argument(error, -1, nj_format("%d", device).text, "expected the ordinal of a device, or NJ_CURRENT_DEVICE");
}

/* Gets the driver's handle of a device. */
static bool find_device(int ordinal, CUdevice *device, nj_error *error)
{
    int asked = ordinal < 0 || ordinal >= NJ_DEVICES_MAX ? -1 : ordinal;
    return nj_driver_ready(error) && nj_outcome_good(NJ_TRY(cuDeviceGet, device, asked), error);
}

static nj_outcome ask(CUdevice device, int attribute, int *value)
{
    return NJ_TRY(cuDeviceGetAttribute, value, attribute, device);
}

bool nj_device_describe(int ordinal, nj_device_facts *facts, nj_error *error)
{
    CUdevice device;
    facts->name[0] = 0;
    return find_device(ordinal, &device, error) &&
           nj_outcome_good(NJ_TRY(cuDeviceGetName, facts->name, sizeof facts->name, device), error) &&
           nj_outcome_good(ask(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &facts->multiprocessors), error) &&
           nj_outcome_good(NJ_TRY(cuDeviceTotalMem, &facts->memory_bytes, device), error);
}

bool nj_device_attribute(int ordinal, int attribute, int *value, nj_error *error)
{
    CUdevice device;
    return find_device(ordinal, &device, error) && nj_outcome_good(ask(device, attribute, value), error);
}

bool nj_device_capability(int ordinal, int *capability, nj_error *error)
{
    CUdevice device;
    nj_text unknown;
    if (!find_device(ordinal, &device, error)) {
        return false;
    }
    const nj_vendor *it = nj_vendor_found;
    CUresult code = it->arch(capability, &unknown, device);
    if (unknown.text[0] != '\0') {
        return nj_driver_failed(error, it->spell("cuDeviceGetAttribute"), it->too_old, it->too_old_name,
                                "expected a GPU that nojit builds for, such as gfx942; device %d is %s", ordinal, unknown.text);
    }
    return nj_outcome_good(nj_outcome_of(code, "cuDeviceGetAttribute"), error);
}

int nj_running_capability(void)
{
    CUcontext current = NULL;
    CUdevice device;
    int capability = 0;
    nj_text unknown;
    if (nj_driver_find() && (!nj_vendor_found->lazy || nj_driver_known()) && nj_calls.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL &&
        nj_calls.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
        (void)nj_vendor_found->arch(&capability, &unknown, device);
    }
    return capability;
}

bool nj_address_find(uint64_t address, int *ordinal, nj_error *error)
{
    if (!nj_driver_ready(error)) {
        return false;
    }
    nj_outcome outcome = NJ_TRY(cuPointerGetAttribute, ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)address);
    if (outcome.code == CUDA_ERROR_INVALID_VALUE) {
        *ordinal = -1;
        return true;
    }
    return nj_outcome_good(outcome, error);
}

typedef struct {
    const nj_device *device;
    CUdeviceptr host, address;
} reaching;

static nj_outcome reach_there(void *facts)
{
    reaching *it = facts;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->device, &pushed);
    if (outcome.call == NULL) {
        outcome = NJ_TRY(cuPointerGetAttribute, &it->address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, it->host);
        nj_context_leave(pushed);
    }
    return outcome;
}

bool nj_address_reach(nj_device *device, uint64_t host, uint64_t *address)
{
    reaching facts = {device, (CUdeviceptr)host, 0};
    bool reached = nj_on_device(device, reach_there, &facts).call == NULL;
    *address = facts.address;
    return reached;
}
