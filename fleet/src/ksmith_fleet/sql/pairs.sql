-- Pairs of guests and the number of sampled contents that both hold, without the popular contents. A content
-- joins at most `popular_above` guests, so the work grows with the rows and not with their square.
WITH ranked AS (
    SELECT fingerprint, COUNT(*) AS guests FROM samples WHERE copies > 0 GROUP BY fingerprint
),
joinable AS (
    SELECT samples.guest, samples.fingerprint
    FROM samples JOIN ranked ON samples.fingerprint = ranked.fingerprint CROSS JOIN settings
    WHERE samples.copies > 0 AND ranked.guests >= 2 AND ranked.guests <= settings.popular_above
)
SELECT one.guest AS guest_a, two.guest AS guest_b, COUNT(*) AS common
FROM joinable AS one JOIN joinable AS two ON one.fingerprint = two.fingerprint AND one.guest < two.guest
GROUP BY one.guest, two.guest
HAVING COUNT(*) >= (SELECT MAX(min_common) FROM settings)
