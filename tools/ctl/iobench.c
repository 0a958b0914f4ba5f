/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cnrectl iobench: how fast drives are with which settings, without a manager, and what that says for one. It reads and
 * never writes; what it drops of the page cache is only of the file that it reads.
 */
#include "tools/ctl/verb.h"

#include "tools/ctl/iobench_report.h"
#include "tools/ctl/iobench_sweep.h"
#include "tools/ctl/iobench_words.h"

#include <errno.h>

/* Nobody is asked: this is for what is wrong with the words. */
static int request(int argc, char *const *argv, json_t **ret_request, char message[CTL_MESSAGE_BYTES])
{
	struct iobench_words words;
	json_t *made;
	int r = iobench_words_parse(argc, argv, &words, message);

	if (r < 0)
		return r;
	made = json_object();
	if (made == NULL)
		return -ENOMEM;
	*ret_request = made;
	return 0;
}

static int is_local(int argc, char *const *argv)
{
	(void)argc;
	(void)argv;
	return 1;
}

static int answer_here(int argc, char *const *argv, json_t **ret_answer, char message[CTL_MESSAGE_BYTES])
{
	struct iobench_words words;
	struct iobench bench;
	json_t *answer = NULL;
	int r = iobench_words_parse(argc, argv, &words, message);

	if (r < 0)
		return r;
	r = iobench_run(&bench, &words, message);
	if (r == 0) {
		answer = iobench_report(&bench);
		if (answer == NULL) {
			(void)snprintf(message, CTL_MESSAGE_BYTES, "out of memory");
			r = -ENOMEM;
		}
	}
	iobench_close(&bench);
	if (r == 0)
		*ret_answer = answer;
	return r;
}

const struct verb verb_iobench = {
	.name = "iobench",
	.arguments = "DIR|FILE... [--block SIZE] [--count N] [--threads N] [--direct yes|no|both] [--seconds S]",
	.summary = "how fast drives are, and the settings for them; needs no manager",
	.request = request,
	.takes_option = iobench_words_take_option,
	.is_local = is_local,
	.answer_here = answer_here,
	.is_order = verb_is_order,
	.print = iobench_report_print,
};
