-- The pairs of guests with the most sampled contents in common, without the popular contents. A content joins at most
-- `popular_above` guests, so the work grows with the rows and not with their square. Pairs are chosen by the contents that count as
-- `ranked`, which their estimates then leave out: whoever is chosen by a high number has it partly by chance.
WITH per_content AS (
    SELECT fingerprint, COUNT(*) AS guests FROM samples WHERE copies > 0 GROUP BY fingerprint
),
joinable AS (
    SELECT samples.guest, samples.fingerprint, (samples.fingerprint & settings.ranking_mask) = 0 AS is_ranked
    FROM samples JOIN per_content ON samples.fingerprint = per_content.fingerprint CROSS JOIN settings
    WHERE samples.copies > 0 AND per_content.guests >= 2 AND per_content.guests <= settings.popular_above
),
counted AS (
    SELECT one.guest AS guest_a, two.guest AS guest_b, COUNT(*) AS common, COUNT(*) FILTER (one.is_ranked) AS ranked
    FROM joinable AS one JOIN joinable AS two ON one.fingerprint = two.fingerprint AND one.guest < two.guest
    GROUP BY one.guest, two.guest
)
SELECT counted.*
FROM counted CROSS JOIN settings
WHERE ranked * (settings.ranking_mask + 1) >= settings.min_common
ORDER BY ranked DESC, guest_a, guest_b
LIMIT (SELECT MAX(most_pairs) FROM settings)
