/* SPDX-License-Identifier: Apache-2.0 */
/* See stop.h. */
#include "engine/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int asked; /* lock-free, as a handler needs it */

static void on_interrupt(int number)
{
	(void)number;
	/* [E17] relaxed: a flag alone, nothing is handed over by it. */
	atomic_store_explicit(&asked, 1, memory_order_relaxed);
}

void stop_arm(void)
{
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
	struct sigaction before;

	if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		(void)sigaction(SIGINT, &action, NULL); /* cannot fail for this signal */
}

bool stop_is_asked(void)
{
	/* [E18] relaxed: as [E17]. */
	return atomic_load_explicit(&asked, memory_order_relaxed) != 0;
}
