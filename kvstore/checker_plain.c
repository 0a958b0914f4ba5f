/* SPDX-License-Identifier: Apache-2.0 */
/* The check with what every CPU of the architecture has. */
#include "kvstore/checker_body.h"

const struct kv_checker kv_checker_plain = CHECKER;
