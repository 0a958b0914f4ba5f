/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this machine, and whoever runs this, can look into the kernel; and if not, which one thing is missing and what to do.
 * Each cause has a sentence of its own. Looks at files and at capabilities only.
 */
#ifndef CNRE_TOOLS_INSPECT_PREFLIGHT_H
#define CNRE_TOOLS_INSPECT_PREFLIGHT_H

#include <stdint.h>

#define PREFLIGHT_MESSAGE_BYTES 1024
#define PREFLIGHT_BTF "/sys/kernel/btf/vmlinux"
#define PREFLIGHT_BTF_VARIABLE "CNRE_INSPECT_BTF" /* where the kernel's types lie, if not there */

struct preflight {
	const char *root;                 /* "", or where a test has its /sys and /proc */
	const char *btf;                  /* NULL: PREFLIGHT_BTF below root */
	uint64_t capabilities;            /* effective, bit by number */
};

/* Those of this process; 0 where the kernel does not tell. */
uint64_t preflight_capabilities(void);

/* 0, or -EPERM, -ENOENT (no types), -ENOSYS (no uprobes), -EACCES (lockdown) with a message. */
int preflight_check(const struct preflight *preflight, char message[PREFLIGHT_MESSAGE_BYTES]);

/*
 * What an error means that came although all of the above was there: of which step ("loading the programs", "attaching to …").
 * Names the settings that are in the way, with their values.
 */
void preflight_explain(const struct preflight *preflight, const char *step, int error, char message[PREFLIGHT_MESSAGE_BYTES]);

#endif
