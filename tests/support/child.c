/* SPDX-License-Identifier: Apache-2.0 */
/* Forked children of tests; see child.h. */
#include "tests/support/child.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t child_start(int (*body)(void *argument), void *argument)
{
	pid_t parent = getpid();
	pid_t child = fork();

	if (child != 0)
		return child;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
	if (getppid() != parent && getppid() != 0)
		_exit(1); /* it was over before that; 0: it is in another namespace, where no number says so */
	_exit(body(argument));
}

int child_wait(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -SIGABRT;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int child_run(int (*body)(void *argument), void *argument)
{
	pid_t child = child_start(body, argument);

	return child < 0 ? -SIGABRT : child_wait(child);
}
