/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/word.h"

#include <criterion/criterion.h>

TestSuite(shm_word, .timeout = 10);

Test(shm_word, state_word_gives_back_what_was_packed)
{
	static const uint32_t generations[] = {0, 1, 0x7fffff, 0xffffff};

	for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++)
		for (int error = 0; error < CNRE_LOAD_ERRORS; error++)
			for (int state = CNRE_STATE_ABSENT; state <= CNRE_STATE_EVICTING; state++) {
				uint32_t word = cnre_word_pack(generations[i], (enum cnre_load_error)error,
							       (enum cnre_state)state);

				cr_assert_eq(cnre_word_generation(word), generations[i]);
				cr_assert_eq((int)cnre_word_error(word), error);
				cr_assert_eq((int)cnre_word_state(word), state);
			}
}

Test(shm_word, generation_wraps_at_24_bits_without_touching_the_state)
{
	uint32_t word = cnre_word_pack(0xffffff + 1, CNRE_LOAD_EIO, CNRE_STATE_READY);

	cr_expect_eq(cnre_word_generation(word), 0);
	cr_expect_eq(cnre_word_state(word), CNRE_STATE_READY);
	cr_expect_eq(cnre_word_error(word), CNRE_LOAD_EIO);
}

Test(shm_word, each_error_class_has_its_errno_and_an_unknown_one_is_eio)
{
	cr_expect_eq(cnre_word_errno(cnre_word_pack(1, CNRE_LOAD_EIO, CNRE_STATE_ABSENT)), -EIO);
	cr_expect_eq(cnre_word_errno(cnre_word_pack(1, CNRE_LOAD_EBADMSG, CNRE_STATE_ABSENT)), -EBADMSG);
	cr_expect_eq(cnre_word_errno(cnre_word_pack(1, CNRE_LOAD_ENOSPC, CNRE_STATE_ABSENT)), -ENOSPC);
	cr_expect_eq(cnre_word_errno(cnre_word_pack(1, CNRE_LOAD_ETIMEDOUT, CNRE_STATE_ABSENT)), -ETIMEDOUT);
	cr_expect_eq(cnre_word_errno(cnre_word_pack(1, (enum cnre_load_error)31, CNRE_STATE_ABSENT)), -EIO);
}

Test(shm_word, place_gives_back_segment_and_offset)
{
	uint64_t place = cnre_place_pack(CNRE_SEGMENTS_MAX - 1, CNRE_SEGMENT_BYTES_MAX - 4096);

	cr_expect_eq(cnre_place_segment(place), CNRE_SEGMENTS_MAX - 1);
	cr_expect_eq(cnre_place_offset(place), CNRE_SEGMENT_BYTES_MAX - 4096);
}

Test(shm_word, log_word_carries_the_lap_of_its_position)
{
	uint64_t entry = cnre_log_pack(3ull * CNRE_LOG_ENTRIES + 9, CNRE_LOG_TOKEN_END, 12, 0xdeadbeef);

	cr_expect_eq(cnre_log_lap(entry), 4);
	cr_expect_eq(cnre_log_kind_of(entry), CNRE_LOG_TOKEN_END);
	cr_expect_eq(cnre_log_argument(entry), 12);
	cr_expect_eq(cnre_log_value(entry), 0xdeadbeef);
}
