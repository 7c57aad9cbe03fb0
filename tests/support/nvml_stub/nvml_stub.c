/* A libnvidia-ml.so.1 that tells what a text file says, for the real pynvml to call.
 *
 * NVML_STUB names the file, one `key=value` a line, read once by each process (a driver opens no file at each call):
 *   init=CODE            what nvmlInit returns          count=N               how many GPUs there are
 *   N.handle=CODE        no handle for GPU N            N.all=CODE            every call on GPU N returns CODE
 *   N.ECC_COUNTER=VALUE  a counter, or -CODE for an error: volatile_uncorrected, aggregate_corrected, ...
 *   N.ecc_mode=0|1|-CODE   N.mig=0|1|-CODE   N.remap_pending=1   N.remap_failed=1   N.remap_uncorrectable=VALUE   N.bus=NUMBER
 *   hang=FUNCTION        that function never returns; with `N.hang=FUNCTION` only for GPU N
 * Compiled with -DOLD it lacks the functions that came after release 450.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct device { int number; } *nvmlDevice_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

enum { OK = 0, NOT_SUPPORTED = 3 };
static struct device devices[64];

static int text(const char *key, char *value, size_t size)
{
    static char lines[256][128];
    static int count = -1;
    size_t length = strlen(key);
    if (count < 0) {
        FILE *file = fopen(getenv("NVML_STUB") ? getenv("NVML_STUB") : "/nonexistent", "r");
        count = 0;
        while (file && count < 256 && fgets(lines[count], sizeof lines[count], file)) {
            lines[count][strcspn(lines[count], "\n")] = 0;
            count++;
        }
        if (file)
            fclose(file);
    }
    for (int i = 0; i < count; i++)
        if (!strncmp(lines[i], key, length) && lines[i][length] == '=') {
            snprintf(value, size, "%s", lines[i] + length + 1);
            return 1;
        }
    return 0;
}

static long long number(const char *key, long long otherwise)
{
    char value[128];
    return text(key, value, sizeof value) ? atoll(value) : otherwise;
}

static long long of(nvmlDevice_t device, const char *key, long long otherwise)
{
    char name[128];
    snprintf(name, sizeof name, "%d.%s", device->number, key);
    return number(name, otherwise);
}

static void hang(const char *function, nvmlDevice_t device)
{
    char value[128], key[32];
    snprintf(key, sizeof key, "%d.hang", device ? device->number : -1);
    if ((text("hang", value, sizeof value) && !strcmp(value, function))
        || (device && text(key, value, sizeof value) && !strcmp(value, function)))
        for (;;)
            pause();
}

#define ENTER(device) do { hang(__func__, device); if (of(device, "all", 0)) return of(device, "all", 0); } while (0)

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    hang(__func__, NULL);
    return number("init", OK);
}

nvmlReturn_t nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(nvmlReturn_t code) { return code == 4242 ? "A new error" : "Unknown Error"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "570.86.15");
    return OK;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = number("count", 8);
    return number("count_error", OK);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    devices[index].number = index;
    *device = &devices[index];
    hang(__func__, *device);
    return of(*device, "handle", OK);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    ENTER(device);
    snprintf(uuid, length, "GPU-%08d", device->number);
    return OK;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    ENTER(device);
    if (of(device, "broken_serial", 0))
        snprintf(serial, length, "\xff\xfe");
    else
        snprintf(serial, length, "16512%d", device->number);
    return OK;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    ENTER(device);
    snprintf(name, length, "NVIDIA H100 80GB HBM3");
    return OK;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending)
{
    long long mode = of(device, "ecc_mode", 1);
    ENTER(device);
    if (mode < 0)
        return -mode;
    *current = *pending = mode;
    return OK;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, unsigned long long *count)
{
    char key[64];
    ENTER(device);
    snprintf(key, sizeof key, "%s_%s", counter ? "aggregate" : "volatile", kind ? "uncorrected" : "corrected");
    long long value = of(device, key, 0);
    if (value < 0)
        return -value;
    *count = value;
    return OK;
}

#ifndef OLD
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    ENTER(device);
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "0000%04X:%02X:00.0", (unsigned)of(device, "domain", 0),
             (unsigned)of(device, "bus", 0x18 + 0x11 * device->number));
    return OK;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    long long mode = of(device, "mig", 0);
    ENTER(device);
    if (mode < 0)
        return -mode;
    *current = *pending = mode;
    return OK;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corr, unsigned *unc, unsigned *pending,
                                       unsigned *failed)
{
    ENTER(device);
    if (of(device, "remap", OK) < 0)
        return -of(device, "remap", OK);
    *corr = 0;
    *unc = of(device, "remap_uncorrectable", 0);
    *pending = of(device, "remap_pending", 0);
    *failed = of(device, "remap_failed", 0);
    return OK;
}
#endif
