/* SPDX-License-Identifier: Apache-2.0 */
/* See preflight.h. */
#include "tools/inspect/preflight.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of linux/capability.h; numbers older headers do not have. */
#define SYS_ADMIN (1ull << 21)
#define PERFMON (1ull << 38)
#define BPF (1ull << 39)

uint64_t preflight_capabilities(void)
{
	uint64_t capabilities = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "CapEff: %" SCNx64, &capabilities) == 1)
			break;
	if (file != NULL)
		(void)fclose(file);
	return capabilities;
}

/* The first line; "" where there is none. */
static const char *read_line(const struct preflight *preflight, const char *path, char text[128])
{
	char name[PATH_MAX];
	FILE *file;

	text[0] = '\0';
	(void)snprintf(name, sizeof name, "%.2000s%s", preflight->root, path);
	file = fopen(name, "re");
	if (file == NULL)
		return text;
	if (fgets(text, 128, file) == NULL)
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	(void)fclose(file);
	return text;
}

static int is_there(const struct preflight *preflight, const char *path)
{
	char name[PATH_MAX];

	(void)snprintf(name, sizeof name, "%.2000s%s", preflight->root, path);
	return access(name, R_OK) == 0;
}

static int check_capabilities(const struct preflight *preflight, char *message)
{
	int has_bpf = (preflight->capabilities & (BPF | SYS_ADMIN)) != 0;
	int has_perfmon = (preflight->capabilities & (PERFMON | SYS_ADMIN)) != 0;

	if (has_bpf && has_perfmon)
		return 0;
	(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
		       "not allowed: this process lacks %s%s%s: run it as root, or give it both capabilities",
		       has_bpf ? "" : "CAP_BPF", has_bpf || has_perfmon ? "" : " and ", has_perfmon ? "" : "CAP_PERFMON");
	return -EPERM;
}

static int check_types(const struct preflight *preflight, char *message)
{
	if (preflight->btf != NULL && access(preflight->btf, R_OK) != 0) {
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES, "the kernel's types are not in %.400s, which $%s names: %s", preflight->btf,
			       PREFLIGHT_BTF_VARIABLE, strerror(errno));
		return -ENOENT;
	}
	if (preflight->btf != NULL || is_there(preflight, PREFLIGHT_BTF))
		return 0;
	(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
		       "the kernel does not describe its types: there is no " PREFLIGHT_BTF
		       ": use a kernel with CONFIG_DEBUG_INFO_BTF, or name a file with its BTF in $" PREFLIGHT_BTF_VARIABLE);
	return -ENOENT;
}

static int check_uprobes(const struct preflight *preflight, char *message)
{
	if (is_there(preflight, "/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset"))
		return 0;
	if (is_there(preflight, "/sys/bus/event_source/devices/uprobe/type"))
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
			       "this kernel cannot count who is attached to a probe (ref_ctr_offset): use Linux 4.20 or newer");
	else
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
			       "the kernel has no uprobes: /sys/bus/event_source/devices/uprobe is not there: use one with "
			       "CONFIG_UPROBE_EVENTS, and see that /sys is mounted");
	return -ENOSYS;
}

static int check_lockdown(const struct preflight *preflight, char *message)
{
	char text[128];

	if (strstr(read_line(preflight, "/sys/kernel/security/lockdown", text), "[confidentiality]") == NULL)
		return 0;
	(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
		       "the kernel is locked down (confidentiality): BPF may not read its memory: boot with lockdown=integrity or none");
	return -EACCES;
}

int preflight_check(const struct preflight *preflight, char message[PREFLIGHT_MESSAGE_BYTES])
{
	int r = check_capabilities(preflight, message);

	if (r == 0)
		r = check_lockdown(preflight, message);
	if (r == 0)
		r = check_types(preflight, message);
	if (r == 0)
		r = check_uprobes(preflight, message);
	return r;
}

void preflight_explain(const struct preflight *preflight, const char *step, int error, char message[PREFLIGHT_MESSAGE_BYTES])
{
	char paranoid[128], unprivileged[128], lockdown[128];

	if (error == -EPERM || error == -EACCES) {
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
			       "%.300s: refused although the capabilities are there: kernel.perf_event_paranoid is %s, "
			       "kernel.unprivileged_bpf_disabled is %s, lockdown is %s: in a container or a user namespace run it outside",
			       step, read_line(preflight, "/proc/sys/kernel/perf_event_paranoid", paranoid),
			       read_line(preflight, "/proc/sys/kernel/unprivileged_bpf_disabled", unprivileged),
			       read_line(preflight, "/sys/kernel/security/lockdown", lockdown)[0] != '\0' ? lockdown : "off");
		return;
	}
	if (error == -ENOMEM)
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES,
			       "%.300s: no memory: on a kernel before 5.11 raise RLIMIT_MEMLOCK (ulimit -l)", step);
	else
		(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES, "%.300s: %s", step, strerror(-error));
}
