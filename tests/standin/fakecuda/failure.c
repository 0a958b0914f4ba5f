/* SPDX-License-Identifier: Apache-2.0 */
/* Failures that a test has asked for, of this process or, through the world, of another one. */
#include "tests/standin/fakecuda/fakecuda.h"
#include "tests/standin/fakecuda/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fakecuda_fail(int pid, const char *function, uint32_t nth, int code, int repeats)
{
	if (!world || !nth || strlen(function) >= sizeof world->failure[0].function)
		return -1;
	world_lock();
	int rc = -1;
	for (int i = 0; i < FAILURES_MAX && rc; i++) {
		struct world_failure *new = &world->failure[i];
		if (new->function[0])
			continue;
		*new = (struct world_failure){.pid = pid, .code = code, .repeats = repeats, .left = nth};
		(void)snprintf(new->function, sizeof new->function, "%s", function);
		rc = 0;
	}
	world_unlock();
	return rc;
}

CUresult failure_take(const char *function)
{
	CUresult code = CUDA_SUCCESS;
	int own = getpid();
	world_lock();
	for (int i = 0; i < FAILURES_MAX && !code; i++) {
		struct world_failure *is = &world->failure[i];
		if (strcmp(is->function, function) != 0 || (is->pid && is->pid != own))
			continue;
		if (is->left > 1) {
			is->left--;
			continue;
		}
		code = (CUresult)is->code;
		if (!is->repeats)
			is->function[0] = 0;
	}
	world_unlock();
	return code;
}

void failure_read_environment(void)
{
	const char *text = getenv("FAKECUDA_FAIL");
	char name[48], plus;
	unsigned nth;
	int code, used;
	while (text && *text) {
		plus = 0;
		if ((sscanf(text, "%47[A-Za-z0-9_]:%u%c%n", name, &nth, &plus, &used) < 3) ||
		    (plus == '+' && sscanf(text += used, ":%d%n", &code, &used) < 1) ||
		    (plus == ':' && sscanf(text += used, "%d%n", &code, &used) < 1) ||
		    fakecuda_fail(getpid(), name, nth, code, plus == '+')) {
			(void)fprintf(stderr, "fakecuda: FAKECUDA_FAIL: expected FUNCTION:NTH[+]:CODE at '%s'\n", text);
			abort();
		}
		text += used;
		text += *text == ',';
	}
}
