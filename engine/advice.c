/* SPDX-License-Identifier: Apache-2.0 */
/* See advice.h. */
#include "engine/advice.h"

#include <errno.h>

const char *advice_for(int error)
{
	switch (error) {
	case -EDOM:
		return "the router saw no number; the checkpoint's weights are broken";
	case -EBADMSG:
		return "an expert is not what config.json implies; check the checkpoint";
	case -ENODATA:
	case -EIO:
		return "an expert could not be read; check the shards and the drive";
	case -EPIPE:
		return "the manager has gone; run again";
	case -ETIMEDOUT:
		return "an expert did not arrive in time; check the drive and the manager's log";
	case -ENOSPC:
		return "one layer's experts exceed the reservation; raise --reserve";
	default:
		return "see cnre-olmoe(1)";
	}
}
