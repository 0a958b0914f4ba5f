/* SPDX-License-Identifier: Apache-2.0 */
/* Dying on request; see crash.h. Empty in every build but that of tests/crash. */
#include "base/crash.h"

#ifdef CNRE_CRASH_POINTS
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic unsigned passes;

static void die(void)
{
	const char *once = getenv("CNRE_CRASH_ONCE");

	/* Not closed: the process ends here. */
	if (once != NULL && open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0)
		return;
	(void)kill(getpid(), SIGKILL);
	(void)pause(); /* the signal may reach another thread first */
}

void cnre_crash_point(const char *name)
{
	const char *at = getenv("CNRE_CRASH_AT");
	size_t length = strlen(name);
	unsigned long wanted;

	if (at == NULL || strncmp(at, name, length) != 0 || (at[length] != '\0' && at[length] != ':'))
		return;
	wanted = at[length] == ':' ? strtoul(at + length + 1, NULL, 10) : 1;
	/* [Z1] relaxed: a count; exactly one pass gets the wanted number. */
	if (atomic_fetch_add_explicit(&passes, 1, memory_order_relaxed) + 1 == wanted)
		die();
}
#else
typedef int cnre_crash_points_are_off; /* a translation unit must hold something */
#endif
