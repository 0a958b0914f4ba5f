/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed CNRE_CHECK does: one line on standard error, then SIGABRT. Allocates nothing, takes no lock. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void cnre_check_failed(const char *expression, const char *file, int line)
{
	char text[512];
	int length = snprintf(text, sizeof text, "cnre: check failed: %s at %s:%d\n", expression, file, line);

	if (length > 0)
		(void)!write(STDERR_FILENO, text, strnlen(text, sizeof text)); /* nothing is left to do about it */
	abort();
}
