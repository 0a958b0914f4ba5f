/* SPDX-License-Identifier: Apache-2.0 */
/* Files that cannot be read past the page cache: each is counted, and each drive is said once. Shown in status (report.c). */
#ifndef CNRE_MANAGER_DIRECT_H
#define CNRE_MANAGER_DIRECT_H

#include <stdint.h>

/* For loader_setup: `manager` is the struct manager whose loader it is. */
void direct_refused(void *manager, uint32_t file);

#endif
