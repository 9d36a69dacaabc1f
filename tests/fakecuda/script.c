/* Scripted failures: which call of which function gives which code. The lock guards all of it. */
#include "state.h"

#include <stdio.h>
#include <string.h>

enum { FAULTS_MAX = 64, ANY_FUNCTION = FN_COUNT };

struct fault {
    /* ANY_FUNCTION: `call` counts those of all of them */
    int function;
    /* counted from the function's next call when the fault was set; -1 for every call */
    int64_t call;
    CUresult code;
};

const char *const fake_function_names[FN_COUNT] = {
#define X(name) #name,
    FAKE_FUNCTIONS(X)
#undef X
};

/* the last counts all of them */
static uint64_t calls[FN_COUNT + 1];
static struct fault faults[FAULTS_MAX];
static int fault_count;

int fake_function_of(const char *name) {
    for (int i = 0; i < FN_COUNT; i++)
        if (strcmp(fake_function_names[i], name) == 0)
            return i;
    return -1;
}

/* As `fake_function_of`, or all of them for "*". */
static int target_of(const char *name) { return strcmp(name, "*") == 0 ? ANY_FUNCTION : fake_function_of(name); }

/* Count the call, and give the code that was scripted for it. */
CUresult fake_scripted(enum fake_function function) {
    const int64_t call = (int64_t)calls[function]++, any = (int64_t)calls[ANY_FUNCTION]++;
    for (int i = 0; i < fault_count; i++) {
        const struct fault *fault = &faults[i];
        int64_t number = fault->function == ANY_FUNCTION ? any : call;
        if ((fault->function == ANY_FUNCTION || fault->function == (int)function) &&
            (fault->call < 0 || fault->call == number))
            return fault->code;
    }
    return CUDA_SUCCESS;
}

/* "name:call:code" separated by semicolons, as fake_fail takes them */
void fake_script_text(const char *text) {
    char name[64];
    long long call;
    int code, used;
    while (text && fault_count < FAULTS_MAX && sscanf(text, "%63[^:]:%lld:%d%n", name, &call, &code, &used) == 3) {
        faults[fault_count++] = (struct fault){target_of(name), call, code};
        text += used + (text[used] == ';');
    }
}

void fake_script_clear(void) {
    memset(calls, 0, sizeof calls);
    fault_count = 0;
}

/* --- control: what the tests call --- */

EXPORT int fake_fail(const char *name, int64_t call, CUresult code) {
    int function = target_of(name);
    fake_lock();
    if (function >= 0 && fault_count < FAULTS_MAX)
        faults[fault_count++] =
            (struct fault){function, call < 0 ? -1 : (int64_t)calls[function] + call, code};
    else
        function = -1;
    fake_unlock();
    return function;
}

EXPORT int64_t fake_calls(const char *name) {
    int function = target_of(name);
    if (function < 0)
        return -1;
    fake_lock();
    int64_t count = (int64_t)calls[function];
    fake_unlock();
    return count;
}
