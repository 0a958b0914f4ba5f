/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cnre-gen. */
#ifndef CNRE_TOOLS_GEN_OPTIONS_H
#define CNRE_TOOLS_GEN_OPTIONS_H

#include "tools/gen/model.h"

struct gen_options {
	struct gen_model model;
	const char *directory;            /* of --out or --verify */
	int verify, force, progress, wants_help, wants_version;
};

/* 0, or -EINVAL and one line. */
int gen_options_parse(int argc, char **argv, struct gen_options *ret_options, char message[GEN_MESSAGE_BYTES]);

#endif
